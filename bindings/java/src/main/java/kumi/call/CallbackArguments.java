package kumi.call;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.function.DoubleUnaryOperator;
import kumi.call.idl.Param;
import kumi.call.idl.Plan;
import kumi.call.idl.Routine;
import kumi.call.idl.Scalar;
import kumi.call.wire.Values.Value;

/**
 * The arguments and results of a callback, by the names of its parameters. A callback sets scalars and texts with {@link #set};
 * it changes arrays in place or sets them. Arrays have the memory order of the description; elements that were not sent are 0.
 */
public final class CallbackArguments extends Named {
    private final Plan plan;
    private final Scalar[] newScalars;
    private final String[] newTexts;
    private volatile boolean over;

    CallbackArguments(Routine declared, Plan plan, Array[] arrays, Scalar[] scalars, String[] texts) {
        super(declared, "is called with no", arrays, scalars, texts);
        this.plan = plan;
        newScalars = new Scalar[arrays.length];
        newTexts = new String[arrays.length];
    }

    /** The declaration of the callback, as a routine. */
    @Override
    public Routine routine() {
        return super.routine();
    }

    /**
     * Sets a result: a scalar (a number, a {@link Scalar}, or real and imaginary part as {@code double[2]}), a text, or an array of
     * the same length and type, which is copied.
     *
     * @throws IllegalArgumentException no result has this name, or the value does not fit it
     * @throws IllegalStateException the callback has returned already
     */
    public CallbackArguments set(String name, Object value) {
        if (over) {
            throw new IllegalStateException("`" + routine().name() + "` has ended; nothing can be given any more");
        }
        int index = routine().indexOf(name);
        Param param = index < 0 ? null : routine().params().get(index);
        if (param == null || !param.mode().isReturned()) {
            throw new IllegalArgumentException("`" + name + "` is nothing that comes back: " + routine());
        }
        if (param.isArray()) {
            fill(index, value);
        } else if (param.isText()) {
            newTexts[index] = text(param, value);
        } else {
            newScalars[index] = scalar(param, value);
        }
        return this;
    }

    private void fill(int index, Object value) {
        Param param = routine().params().get(index);
        Numbers from = value == null ? null : Numbers.of(value);
        Numbers into = Numbers.of(array(param.name()));
        if (from == null || !from.fits(plan.arguments().get(index).element())) {
            throw new IllegalArgumentException("`" + param.name() + "` is an array of "
                    + plan.arguments().get(index).element() + ", " + kind(value) + " is none");
        }
        if (from.bytes() != into.bytes()) {
            throw new IllegalArgumentException("`" + param.name() + "` has " + into.bytes() + " bytes (" + shape(param.name())
                    + "), " + from.bytes() + " were given");
        }
        from.copyTo(into);
    }

    private static String kind(Object value) {
        return value == null ? "nothing" : value.getClass().getSimpleName();
    }

    private static Scalar scalar(Param param, Object value) {
        Scalar scalar;
        try {
            scalar = param.scalar() == null ? null : Arguments.scalar(param.scalar(), value);
        } catch (ArithmeticException beyond) {
            throw new IllegalArgumentException("`" + param.name() + "` is " + beyond.getMessage());
        }
        if (scalar == null) {
            throw new IllegalArgumentException("`" + param.name() + "` is a scalar (" + param + "), " + kind(value) + " is none");
        }
        Scalar fitting = scalar.fit(param.scalar());
        if (fitting == null) {
            throw new IllegalArgumentException(
                    "`" + param.name() + "` is of type " + param.scalar() + ", which cannot hold " + scalar);
        }
        return fitting;
    }

    private static String text(Param param, Object value) {
        if (!(value instanceof CharSequence || value instanceof Character)) {
            throw new IllegalArgumentException("`" + param.name() + "` is a text, " + kind(value) + " is none");
        }
        String text = value.toString();
        String wrong = Arguments.wrongText(text);
        if (wrong != null) {
            throw new IllegalArgumentException("`" + param.name() + "` is " + wrong);
        }
        return text;
    }

    /** Applies a function to the only real input, and sets the only real result. */
    void apply(DoubleUnaryOperator function) {
        List<Param> params = routine().params();
        List<Param> sent = params.stream().filter(param -> param.mode().isSent()).toList();
        List<Param> back = params.stream().filter(param -> param.mode().isReturned()).toList();
        if (sent.size() != 1 || back.size() != 1 || sent.get(0).scalar() == null || back.get(0).scalar() == null) {
            throw new IllegalStateException("`" + routine().name()
                    + "` does not take one real number and give one; pass a Callback that uses its arguments: " + routine());
        }
        set(back.get(0).name(), function.applyAsDouble(real(sent.get(0).name())));
    }

    /** Marks the callback as returned: no result can be set any more. */
    void end() {
        over = true;
    }

    /** The scalar and text results. Those that were not set keep the values that were sent. */
    List<Value> back() {
        List<Value> back = new ArrayList<>();
        for (int index = 0; index < newScalars.length; index++) {
            Param param = routine().params().get(index);
            if (!param.mode().isReturned() || param.scalar() == null && !param.isText()) {
                continue;
            }
            Scalar scalar = newScalars[index] != null ? newScalars[index] : scalarAt(index);
            String text = newTexts[index] != null ? newTexts[index] : textAt(index);
            if (scalar == null && text == null) {
                throw new IllegalStateException("it gave no value of `" + param.name() + "`");
            }
            if (text != null) {
                long bytes = text.getBytes(StandardCharsets.UTF_8).length;
                long room = plan.arguments().get(index).bytes();
                if (bytes >= room) {
                    throw new IllegalStateException("the text `" + param.name() + "` has " + bytes
                            + " bytes, and there is room for " + Math.max(0, room - 1));
                }
            }
            back.add(new Value(index, scalar, text));
        }
        return back;
    }
}
