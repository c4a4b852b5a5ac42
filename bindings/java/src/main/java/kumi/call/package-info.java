/** Calls. */
package kumi.call;
