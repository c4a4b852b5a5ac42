package kumi.call;

import java.util.Arrays;
import kumi.call.idl.Order;

/** Elements along each dimension of an array. */
public final class Shape {
    private final long[] dims;

    private Shape(long[] dims) {
        this.dims = dims;
    }

    /** A shape of these lengths. A negative length is an error. */
    public static Shape of(long... dims) {
        for (long dim : dims) {
            if (dim < 0) {
                throw new IllegalArgumentException("a dimension of " + dim + " elements");
            }
        }
        return new Shape(dims.clone());
    }

    /** Elements along each dimension. */
    public long[] dims() {
        return dims.clone();
    }

    /** An array of this shape in row order, as in C: the last index varies fastest. */
    public Shaped rows(Object array) {
        return new Shaped(array, this, Order.ROW);
    }

    /** An array of this shape in column order, as in Fortran: the first index varies fastest. */
    public Shaped columns(Object array) {
        return new Shaped(array, this, Order.COLUMN);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Shape shape && Arrays.equals(dims, shape.dims);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(dims);
    }

    @Override
    public String toString() {
        return Arrays.toString(dims);
    }
}
