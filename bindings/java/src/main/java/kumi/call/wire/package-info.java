/** The protocol of library calls (docs/reference/call-protocol.md): frames, and a connection as its client sees it; no sockets. */
package kumi.call.wire;
