/** The protocol of calls (docs/reference/call-protocol.md): frames, and the client's state of a connection; no sockets. */
package kumi.call.wire;
