/** The calls of a transaction and what depends on what, without sockets and arrays. */
package kumi.call.graph;
