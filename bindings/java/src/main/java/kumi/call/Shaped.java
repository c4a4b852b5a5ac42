package kumi.call;

import kumi.call.idl.Order;

/**
 * An array with a shape. The client checks the shape against the description, and copies the array if the memory order differs. The
 * shape of a complex array counts complex numbers, which take two elements each.
 *
 * @param array an array of primitive numbers, or a buffer
 * @param shape its shape
 * @param order its memory order
 */
public record Shaped(Object array, Shape shape, Order order) {
    /** A matrix of rows of one length; a copy. */
    static Shaped matrix(double[][] rows) {
        int width = rows.length == 0 ? 0 : rows[0].length;
        double[] flat = new double[Math.multiplyExact(rows.length, width)];
        for (int row = 0; row < rows.length; row++) {
            if (rows[row].length != width) {
                throw new IllegalArgumentException("row " + row + " has " + rows[row].length
                        + " elements, the first has " + width);
            }
            System.arraycopy(rows[row], 0, flat, row * width, width);
        }
        return Shape.of(rows.length, width).rows(flat);
    }
}
