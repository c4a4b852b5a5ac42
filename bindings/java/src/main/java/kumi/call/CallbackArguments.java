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
 * What a function is called with, by the names of its parameters, and where it puts what it gives: scalars and texts by
 * {@link #set}, arrays in place or by it. Arrays lie in the order that the description says; what was not sent of one is 0.
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

    /** What the function takes and gives, as a routine of its own. */
    @Override
    public Routine routine() {
        return super.routine();
    }

    /**
     * Gives a scalar (a number, a {@link Scalar}, or real and imaginary part as {@code double[2]}), a text, or an array: as many
     * numbers of the same type, which are copied.
     *
     * @throws IllegalArgumentException none of this name comes back, or it cannot be this
     * @throws IllegalStateException the function has ended
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

    /** Takes the only real number that is sent, and gives the only one that comes back. */
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

    /** The function has ended: nothing more is given. */
    void end() {
        over = true;
    }

    /** The scalars and texts that come back: what was given, what was sent of the rest. */
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
