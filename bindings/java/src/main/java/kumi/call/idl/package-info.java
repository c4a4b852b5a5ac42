/**
 * Descriptions of routines, and the plan of a call that client and server both compute from one: which bytes of which
 * argument travel, before a byte of it does. The same as the Rust crate {@code kumi-idl}; shared test vectors hold the
 * two together.
 */
package kumi.call.idl;
