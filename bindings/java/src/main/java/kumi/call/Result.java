package kumi.call;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.stream.IntStream;
import kumi.call.idl.Argument;
import kumi.call.idl.Order;
import kumi.call.idl.Param;
import kumi.call.idl.Routine;
import kumi.call.idl.Scalar;
import kumi.call.wire.Values.ResultHead;
import kumi.call.wire.Values.Value;

/**
 * What a call gave: its results by the names of the parameters. An accessor of what is not there, or is something else,
 * throws {@link NoSuchElementException} that says what there is.
 */
public final class Result {
    /** An array that came back. */
    record Array(Object owner, Argument argument, Order order) {}

    private final Routine routine;
    private final Array[] arrays;
    private final Scalar[] scalars;
    private final String[] texts;
    private final ResultHead head;

    Result(Routine routine, Array[] arrays, ResultHead head) {
        this.routine = routine;
        this.arrays = arrays;
        this.head = head;
        scalars = new Scalar[arrays.length];
        texts = new String[arrays.length];
        for (Value value : head.values()) {
            Param param = value.param() < arrays.length ? routine.params().get(value.param()) : null;
            boolean text = param != null && param.isText() && value.text() != null;
            boolean scalar = param != null && param.scalar() != null && value.scalar() != null;
            if (!text && !scalar || !param.mode().isReturned()) {
                throw new CallException.Server("the result of `" + routine.name() + "` does not fit its description", 0);
            }
            scalars[value.param()] = value.scalar();
            texts[value.param()] = value.text();
        }
    }

    /** The routine that was called. */
    public Routine routine() {
        return routine;
    }

    /** How long the call waited for a slot. */
    public Duration waited() {
        return Duration.ofNanos(head.waited());
    }

    /** How long the routine ran. */
    public Duration ran() {
        return Duration.ofNanos(head.ran());
    }

    /** The names of what came back. */
    public List<String> names() {
        return IntStream.range(0, arrays.length)
                .filter(index -> arrays[index] != null || scalars[index] != null || texts[index] != null)
                .mapToObj(index -> routine.params().get(index).name()).toList();
    }

    private NoSuchElementException none(String name, String what) {
        return new NoSuchElementException(
                "`" + routine.name() + "` gave no `" + name + "` that is " + what + ": " + routine);
    }

    private Array arrayOf(String name) {
        int index = routine.indexOf(name);
        if (index < 0 || arrays[index] == null) {
            throw none(name, "an array");
        }
        return arrays[index];
    }

    /** An array or buffer: the one that was given for it, or a new array of primitive numbers. */
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

    /** An array of doubles; of complex numbers real and imaginary parts in turn. */
    public double[] doubles(String name) {
        return as(double[].class, name);
    }

    /** An array of floats; of complex numbers real and imaginary parts in turn. */
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

    /** A matrix of doubles, row by row, however it lies in memory; a copy. */
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

    /** How an array lies in memory: as the one that was sent or given for it, otherwise as the routine has it. */
    public Order order(String name) {
        return arrayOf(name).order();
    }

    Scalar scalarAt(int index) {
        return scalars[index];
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

    @Override
    public String toString() {
        StringBuilder text = new StringBuilder(routine.name()).append(" ->");
        for (String name : names()) {
            int index = routine.indexOf(name);
            Object value = scalars[index] != null ? scalars[index] : texts[index] != null ? "\"" + texts[index] + "\""
                    : Arrays.toString(arrays[index].argument().sizes());
            text.append(' ').append(name).append(": ").append(value);
        }
        return text.toString();
    }
}
