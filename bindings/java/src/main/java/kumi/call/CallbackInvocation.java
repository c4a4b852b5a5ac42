package kumi.call;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import kumi.call.Exchange.Send;
import kumi.call.Exchange.Target;
import kumi.call.idl.Argument;
import kumi.call.idl.Copies;
import kumi.call.idl.Param;
import kumi.call.idl.Plan;
import kumi.call.idl.PlanException;
import kumi.call.idl.Scalar;
import kumi.call.idl.Type;
import kumi.call.wire.Protocol;
import kumi.call.wire.Values;
import kumi.call.wire.Values.Value;

/** The invocation of a callback by a routine: its arguments, and then its results. */
final class CallbackInvocation {
    /** The arguments of a routine do not fit the callback. */
    static final class ArgumentMismatch extends Exception {
        private static final long serialVersionUID = 1;

        ArgumentMismatch(String why) {
            super(why);
        }
    }

    /**
     * The outcome of a callback.
     *
     * @param well whether it has returned
     * @param body the body of the answer frame
     * @param sends the arrays that follow it
     */
    record CallbackOutcome(boolean well, byte[] body, List<Send> sends) {
        static CallbackOutcome failed(String why) {
            return new CallbackOutcome(false, Values.failed(why), List.of());
        }
    }

    /** An array of which only a section is sent: the section, packed, and the array. */
    private record PackedResult(Argument argument, ByteBuffer packed, Numbers numbers) {}

    private final Functions functions;
    private final Functions.Function function;
    private final Plan plan;
    private final Scalar[] scalars;
    private final String[] texts;
    private final Numbers[] arrays;
    private final List<Target> targets = new ArrayList<>();
    private final List<PackedResult> unpacks = new ArrayList<>();

    private CallbackInvocation(Functions functions, Functions.Function function, Plan plan, Scalar[] scalars, String[] texts) {
        this.functions = functions;
        this.function = function;
        this.plan = plan;
        this.scalars = scalars;
        this.texts = texts;
        arrays = new Numbers[scalars.length];
    }

    /** Reads the arguments of a callback. It allocates the arrays once the plan is within the limit. */
    static CallbackInvocation of(Functions functions, Functions.Function function, List<Value> values, long limit) throws ArgumentMismatch {
        List<Param> params = function.declared().params();
        String name = "`" + function.declared().name() + "`: ";
        Scalar[] scalars = new Scalar[params.size()];
        String[] texts = new String[params.size()];
        for (Value value : values) {
            take(params, value, scalars, texts, name);
        }
        for (int index = 0; index < texts.length; index++) {
            Param param = params.get(index);
            boolean given = param.isText() ? texts[index] != null : !(param.type() instanceof Type.File);
            if (param.mode().isSent() && !given) {
                throw new ArgumentMismatch(name + "`" + param.name() + "` has no value and no default");
            }
        }
        try {
            Plan plan = function.declared().plan(scalars, texts, limit);
            CallbackInvocation called = new CallbackInvocation(functions, function, plan, scalars, texts);
            for (int index = 0; index < texts.length; index++) {
                called.receive(index);
            }
            return called;
        } catch (PlanException misfit) {
            throw new ArgumentMismatch(name + misfit.getMessage());
        } catch (ArithmeticException beyond) {
            throw new ArgumentMismatch(name + "it has more elements than an array of Java can");
        } catch (OutOfMemoryError none) {
            throw new ArgumentMismatch(name + "Java has no memory for its arrays (" + none.getMessage()
                    + "); ClientOptions.callbackBytes bounds them");
        }
    }

    private static void take(List<Param> params, Value value, Scalar[] scalars, String[] texts, String name) throws ArgumentMismatch {
        String argument = name + "argument " + value.param() + ": ";
        if (value.param() >= params.size()) {
            throw new ArgumentMismatch(argument + "the routine has fewer parameters");
        }
        Param param = params.get(value.param());
        if (value.file() != null) {
            throw new ArgumentMismatch(argument + "it takes no file");
        }
        if (value.text() != null) {
            if (!param.isText() || !param.mode().isSent()) {
                throw new ArgumentMismatch(argument + "it takes no text");
            }
            if (value.text().indexOf('\0') >= 0) {
                throw new ArgumentMismatch(argument + "a text with a zero byte");
            }
        }
        // The plan detects a scalar that the callback does not have.
        scalars[value.param()] = value.scalar();
        texts[value.param()] = value.text();
    }

    private Argument argument(int index) {
        return plan.arguments().get(index);
    }

    private static ByteBuffer room(long bytes) {
        return ByteBuffer.allocate(Math.toIntExact(bytes)).order(ByteOrder.LITTLE_ENDIAN);
    }

    /** Allocates an array for incoming data. */
    private void receive(int index) {
        Argument argument = argument(index);
        if (!argument.param().isArray() || argument.sent() == 0) {
            return;
        }
        Numbers numbers = Numbers.allocate(argument.element(), argument.elements());
        arrays[index] = numbers;
        if (argument.section().isSingle()) {
            targets.add(Target.of(index, numbers, argument.section().first(), argument.sent()));
        } else {
            ByteBuffer packed = room(argument.sent());
            targets.add(Target.of(index, packed));
            unpacks.add(new PackedResult(argument, packed, numbers));
        }
    }

    List<Target> targets() {
        return targets;
    }

    /** Bytes of the incoming arrays, by parameter. */
    Map<Integer, Long> sizes() {
        Map<Integer, Long> sizes = new TreeMap<>();
        targets.forEach(target -> sizes.put(target.argument(), target.bytes()));
        return sizes;
    }

    /** Runs the callback; all of its arguments have come. */
    CallbackOutcome run() {
        try {
            CallbackArguments arguments = ready();
            try (CallContext.Scope ofCall = functions.context().enter()) {
                function.body().call(arguments);
            } finally {
                arguments.end();
            }
            return ended(arguments);
        } catch (Throwable thrown) {
            // Any error: without an answer the routine would wait for ever.
            functions.raise(thrown);
            if (thrown instanceof InterruptedException) {
                Thread.currentThread().interrupt();
            }
            return CallbackOutcome.failed(thrown.getMessage() == null ? thrown.toString() : thrown.getMessage());
        }
    }

    private CallbackArguments ready() {
        for (PackedResult unpack : unpacks) {
            Copies copies = new Copies(unpack.argument(), unpack.argument().param().order());
            unpack.numbers().unpack(copies, unpack.argument().element(), unpack.packed());
        }
        Named.Array[] shown = new Named.Array[arrays.length];
        for (int index = 0; index < arrays.length; index++) {
            Argument argument = argument(index);
            if (argument.param().isArray()) {
                if (arrays[index] == null) {
                    arrays[index] = Numbers.allocate(argument.element(), argument.elements());
                }
                shown[index] = new Named.Array(arrays[index].owner(), argument, argument.param().order());
            }
        }
        Scalar[] effective = new Scalar[scalars.length];
        for (int index = 0; index < effective.length; index++) {
            effective[index] = argument(index).scalar();
        }
        return new CallbackArguments(function.declared(), plan, shown, effective, texts.clone());
    }

    private CallbackOutcome ended(CallbackArguments arguments) {
        byte[] body = Values.returned(arguments.back());
        if (body.length > Protocol.MOST_REQUEST) {
            throw new IllegalStateException("it gave texts of " + body.length + " bytes, which is too much");
        }
        List<Send> sends = new ArrayList<>();
        for (int index = 0; index < arrays.length; index++) {
            Argument argument = argument(index);
            if (!argument.param().isArray() || argument.returned() == 0) {
                continue;
            }
            if (argument.section().isSingle()) {
                sends.add(Send.of(index, arrays[index], argument.section().first(), argument.returned()));
            } else {
                ByteBuffer packed = room(argument.returned());
                arrays[index].pack(new Copies(argument, argument.param().order()), argument.element(), packed);
                sends.add(Send.of(index, packed));
            }
        }
        return new CallbackOutcome(true, body, sends);
    }
}
