package kumi.call.idl;

import java.util.List;

/**
 * The plan of one argument.
 *
 * @param param its parameter
 * @param scalar the value in effect of a scalar that is sent: the caller's or the default; otherwise null
 * @param axes the array's dimensions in the order of the description
 * @param elements elements in memory
 * @param bytes bytes in memory
 * @param offset where they lie in the call's memory at the server
 * @param align alignment in bytes, a power of two
 * @param section the part that travels, in either direction
 * @param sent bytes that go to the server
 * @param returned bytes that come back
 */
public record Argument(
        Param param, Scalar scalar, List<Axis> axes, long elements, long bytes, long offset, int align,
        Section section, long sent, long returned) {

    /** The elements' type; null of what is no number. */
    public Element element() {
        return param.type() instanceof Type.Number number ? number.element() : null;
    }

    /** Elements along each dimension. */
    public long[] sizes() {
        return axes.stream().mapToLong(Axis::size).toArray();
    }
}
