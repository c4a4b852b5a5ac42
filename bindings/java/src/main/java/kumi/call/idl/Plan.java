package kumi.call.idl;

import java.util.List;

/**
 * The plan of a call.
 *
 * @param arguments one for each parameter
 * @param memory bytes of memory that the arguments need at the server
 * @param sent bytes of scalars and arrays that go to the server
 * @param returned bytes of scalars and arrays that come back
 * @param operations operations of the call; NaN: not said, or not a number for these arguments
 */
public record Plan(List<Argument> arguments, long memory, long sent, long returned, double operations) {}
