package kumi.call;

import java.util.NoSuchElementException;
import kumi.call.idl.Argument;
import kumi.call.idl.Order;
import kumi.call.idl.Routine;
import kumi.call.idl.Scalar;

/**
 * Scalars, texts and arrays by the names of their parameters. If there is no such value, or it has another type, an accessor throws
 * a {@link NoSuchElementException} that names the existing values.
 */
public abstract sealed class Named permits Result, CallbackArguments {
    /** An array. */
    record Array(Object owner, Argument argument, Order order) {}

    private final Routine routine;
    private final String verb;
    private final Array[] arrays;
    private final Scalar[] scalars;
    private final String[] texts;

    /** By parameter; null where there is none. */
    Named(Routine routine, String verb, Array[] arrays, Scalar[] scalars, String[] texts) {
        this.routine = routine;
        this.verb = verb;
        this.arrays = arrays;
        this.scalars = scalars;
        this.texts = texts;
    }

    /** The routine or callback that declares the names. */
    public Routine routine() {
        return routine;
    }

    NoSuchElementException none(String name, String what) {
        return new NoSuchElementException(
                "`" + routine.name() + "` " + verb + " `" + name + "` that is " + what + ": " + routine);
    }

    private Array arrayOf(String name) {
        int index = routine.indexOf(name);
        if (index < 0 || arrays[index] == null) {
            throw none(name, "an array");
        }
        return arrays[index];
    }

    /** An array of primitive numbers, or the array or buffer that the caller passed. */
    public Object array(String name) {
        return arrayOf(name).owner();
    }

    private <T> T as(Class<T> kind, String name) {
        Object owner = array(name);
        if (!kind.isInstance(owner)) {
            throw none(name, "a " + kind.getSimpleName() + " (it is a " + owner.getClass().getSimpleName() + ")");
        }
        return kind.cast(owner);
    }

    /** An array of doubles; complex numbers are pairs of real and imaginary part. */
    public double[] doubles(String name) {
        return as(double[].class, name);
    }

    /** An array of floats; complex numbers are pairs of real and imaginary part. */
    public float[] floats(String name) {
        return as(float[].class, name);
    }

    /** An array of 64-bit integers. */
    public long[] longs(String name) {
        return as(long[].class, name);
    }

    /** An array of 32-bit integers. */
    public int[] ints(String name) {
        return as(int[].class, name);
    }

    /** An array of 16-bit integers. */
    public short[] shorts(String name) {
        return as(short[].class, name);
    }

    /** An array of 8-bit integers. */
    public byte[] bytes(String name) {
        return as(byte[].class, name);
    }

    /** A copy of a matrix of doubles, row by row, whatever its memory order is. */
    public double[][] matrix(String name) {
        Array array = arrayOf(name);
        double[] all = doubles(name);
        long[] dims = array.argument().sizes();
        if (dims.length != 2 || all.length != array.argument().elements()) {
            throw none(name, "a matrix of doubles");
        }
        int height = (int) dims[0];
        int width = (int) dims[1];
        double[][] rows = new double[height][width];
        for (int row = 0; row < height; row++) {
            for (int column = 0; column < width; column++) {
                rows[row][column] = all[array.order() == Order.ROW ? row * width + column : column * height + row];
            }
        }
        return rows;
    }

    /** An array's shape. */
    public Shape shape(String name) {
        return Shape.of(arrayOf(name).argument().sizes());
    }

    /** The memory order of an array: that of the caller's array, otherwise the routine's. */
    public Order order(String name) {
        return arrayOf(name).order();
    }

    Scalar scalarAt(int index) {
        return scalars[index];
    }

    String textAt(int index) {
        return texts[index];
    }

    Array arrayAt(int index) {
        return arrays[index];
    }

    /** A scalar. */
    public Scalar scalar(String name) {
        int index = routine.indexOf(name);
        if (index < 0 || scalars[index] == null) {
            throw none(name, "a scalar");
        }
        return scalars[index];
    }

    /** An integer. */
    public long integer(String name) {
        Long value = scalar(name).asInteger();
        if (value == null) {
            throw none(name, "an integer");
        }
        return value;
    }

    /** A real number. */
    public double real(String name) {
        Double value = scalar(name).asReal();
        if (value == null) {
            throw none(name, "a real number");
        }
        return value;
    }

    /** A text. */
    public String text(String name) {
        int index = routine.indexOf(name);
        if (index < 0 || texts[index] == null) {
            throw none(name, "a text");
        }
        return texts[index];
    }
}
