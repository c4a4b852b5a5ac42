/**
 * Descriptions of routines, and plans of calls. Client and server compute the same plan from a description: which bytes of which
 * argument travel, before any of them is sent. The Rust crate {@code kumi-idl} does the same; shared test vectors compare the two.
 */
package kumi.call.idl;
