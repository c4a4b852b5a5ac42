package kumi.call.idl;

/**
 * One dimension of an array, and its part that travels.
 *
 * @param size elements along it
 * @param start the first that travels
 * @param count how many travel
 * @param step from one to the next, at least 1
 */
public record Axis(long size, long start, long count, long step) {}
