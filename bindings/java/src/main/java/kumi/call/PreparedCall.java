package kumi.call;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Consumer;
import kumi.call.idl.Argument;
import kumi.call.idl.Axis;
import kumi.call.idl.Copies;
import kumi.call.idl.Element;
import kumi.call.idl.Order;
import kumi.call.idl.Param;
import kumi.call.idl.Plan;
import kumi.call.idl.PlanException;
import kumi.call.idl.Routine;
import kumi.call.idl.Scalar;
import kumi.call.idl.Type;
import kumi.call.wire.MetaserverMessages.Placement;
import kumi.call.wire.Values.ResultHead;
import kumi.call.wire.Values.Value;

/** A call whose arguments fit the description, with the destinations of its results. Close it when the call has ended. */
final class PreparedCall implements AutoCloseable {
    /** An array of numbers from the caller. */
    private record GivenArray(Numbers numbers, long[] dims, Order order) {}

    /** A result that comes packed, and the memory for it. */
    private record PackedResult(Argument argument, ByteBuffer packed, GivenArray place) {}

    private final Routine routine;
    private final Scalar[] scalars;
    private final String[] texts;
    private final GivenArray[] arrays;
    /** Files that are sent: their paths or their content. */
    private final Object[] sources;
    private final Long[] lengths;
    private final CallFiles files;
    private final List<Functions.Function> functions = new ArrayList<>();
    private final Result.Array[] results;
    /** An array that stays and has no name yet. */
    private static final byte[] NAMELESS = new byte[HeldArray.NAME];

    /** Where arrays of the call may stay; null: nowhere. */
    private final HeldPlace holder;
    /** Arrays that the server holds: those that are sent, and results that stay, with their times. */
    private final HeldArray[] held;
    private final HeldArray[] kept;
    private Duration[] times;
    /** What binds a call through a metaserver to a server; null: nothing does. */
    private BoundArguments bound;
    /** Arrays of {@code held} that are not dropped before the call has ended. */
    private final List<HeldArray> retained = new ArrayList<>();
    /** The results were handed out, and with them the arrays that stay. */
    private boolean given;
    private final List<Exchange.Send> sends = new ArrayList<>();
    private final List<Exchange.Target> targets = new ArrayList<>();
    private final List<PackedResult> unpacks = new ArrayList<>();
    private Plan plan;
    private boolean overwrites;

    private PreparedCall(Routine routine, HeldPlace holder) {
        this.holder = holder;
        int count = routine.params().size();
        this.routine = routine;
        scalars = new Scalar[count];
        texts = new String[count];
        arrays = new GivenArray[count];
        sources = new Object[count];
        lengths = new Long[count];
        files = new CallFiles(count);
        results = new Result.Array[count];
        held = new HeldArray[count];
        kept = new HeldArray[count];
    }

    /**
     * Checks arguments and allocates results.
     *
     * @param limit most bytes of memory at the server
     * @param options limits of files
     * @param holder where arrays of the call may stay; null: nowhere
     * @throws CallException.Argument an argument does not fit
     * @throws CallException.TooLarge the call needs more memory
     * @throws CallException.File a file cannot be read or written
     */
    static PreparedCall of(Routine routine, Arguments arguments, long limit, ClientOptions options, HeldPlace holder) {
        PreparedCall prepared = new PreparedCall(routine, holder);
        boolean done = false;
        try {
            Object[] places = prepared.check(arguments, limit);
            prepared.open(places, options);
            done = true;
            return prepared;
        } catch (OutOfMemoryError none) {
            throw new CallException.TooLarge("`" + routine.name() + "`: Java has no memory for its arrays (" + none.getMessage()
                    + "); ClientOptions.memory bounds calls before any is taken", 0);
        } finally {
            if (!done) {
                prepared.close();
            }
        }
    }

    /** Checks everything but files, and finds the destinations of results. */
    private Object[] check(Arguments arguments, long limit) {
        Object[] sent = arguments.sent(routine);
        Object[] places = arguments.places(routine);
        times = arguments.kept(routine);
        for (int index = 0; index < sent.length; index++) {
            take(index, sent[index]);
        }
        plan = plan(limit);
        GivenArray[] targets = new GivenArray[places.length];
        for (int index = 0; index < places.length; index++) {
            boolean array = places[index] != null && routine.params().get(index).isArray();
            targets[index] = array ? given(index, places[index]) : null;
        }
        for (int index = 0; index < sent.length; index++) {
            Argument argument = plan.arguments().get(index);
            if (argument.param().isArray() && argument.param().mode().isSent()) {
                send(index, argument);
            }
        }
        for (int index = 0; index < sent.length; index++) {
            Argument argument = plan.arguments().get(index);
            if (argument.param().isArray() && argument.param().mode().isReturned()) {
                if (times[index] == null) {
                    receive(index, argument, targets[index]);
                } else {
                    keep(index, argument);
                }
            }
        }
        bound = holder == null || holder.grid() == null ? null : BoundArguments.of(routine, held);
        return places;
    }

    /** Opens the files that are sent, and creates those that come back. */
    private void open(Object[] places, ClientOptions options) {
        for (int index = 0; index < places.length; index++) {
            Param param = routine.params().get(index);
            if (!(param.type() instanceof Type.File)) {
                continue;
            }
            if (sources[index] instanceof byte[] content) {
                lengths[index] = (long) content.length;
                sends.add(Exchange.Send.of(index, Numbers.of(content), 0, content.length));
            } else if (sources[index] instanceof Path path) {
                long[] bytes = new long[1];
                sends.add(files.send(index, path, bytes));
                lengths[index] = bytes[0];
            }
            if (lengths[index] != null && lengths[index] == 0) {
                sends.remove(sends.size() - 1);
            }
            if (param.mode().isReturned()) {
                targets.add(places[index] instanceof Path path ? files.receive(index, path, options.fileBytes())
                        : files.receive(index, Math.min(options.fileBytes(), options.memory())));
            }
        }
    }

    /** The call has ended: closes all files, and removes incomplete ones. */
    @Override
    public void close() {
        files.close();
        dropKept();
        retained.forEach(HeldArray::release);
        retained.clear();
    }

    /** What binds a call through a metaserver to a server; null: nothing does. */
    BoundArguments bound() {
        return bound;
    }

    /** The call through a metaserver is sent there: results that stay get names, which are of this attempt. */
    void stay(Connection connection, Placement placed) {
        dropKept();
        for (int index = 0; index < kept.length; index++) {
            if (times[index] != null) {
                Argument argument = plan.arguments().get(index);
                String madeBy = "`" + argument.param().name() + "` of `" + routine.name() + "`";
                kept[index] = new HeldArray(connection, argument, new HeldArray.Origin(holder.grid(), placed, madeBy));
            }
        }
    }

    /** Nobody has the results of an attempt that is over: the call may have run, and left arrays. */
    void dropKept() {
        for (int index = 0; index < kept.length && !given; index++) {
            if (kept[index] != null) {
                kept[index].close();
                kept[index] = null;
            }
        }
    }

    /** The callbacks of the routine, which run by means of {@code turns} and whose calls inherit {@code context}; null: none. */
    Functions functions(long limit, Consumer<Runnable> turns, InheritedContext context) {
        return functions.isEmpty() ? null : new Functions(functions, limit, turns, context);
    }

    /** Data to send, from the first byte. */
    List<Exchange.Send> sends() {
        return sends.stream().map(Exchange.Send::again).toList();
    }

    /** Destinations of results, from the first byte; file content received before is discarded. */
    List<Exchange.Target> targets() {
        files.again();
        return targets.stream().map(Exchange.Target::again).toList();
    }

    /** Whether results may overwrite arguments while they come; then the arguments cannot be sent again. */
    boolean overwrites() {
        return overwrites;
    }

    /** Bytes to send, including files, without arrays that the server holds. */
    long sent() {
        long sum = plan.sent();
        for (HeldArray there : held) {
            sum -= there == null ? 0 : there.bytes();
        }
        for (Long length : lengths) {
            // Files are smaller than disks, so the sum does not overflow.
            sum += length == null ? 0 : length;
        }
        return sum;
    }

    /** Bytes that come back, without files and arrays that stay. */
    long returned() {
        long sum = plan.returned();
        for (int index = 0; index < kept.length; index++) {
            sum -= times[index] == null ? 0 : plan.arguments().get(index).returned();
        }
        return sum;
    }

    /** Number of operations by the description; NaN: not described. */
    double operations() {
        return plan.operations();
    }

    /** Scalars, texts and lengths of files that are sent. */
    List<Value> values() {
        List<Value> values = new ArrayList<>();
        for (int index = 0; index < scalars.length; index++) {
            if (scalars[index] != null || texts[index] != null || lengths[index] != null) {
                values.add(new Value(index, scalars[index], texts[index], lengths[index]));
            }
            if (held[index] != null && held[index].bytes() > 0) {
                values.add(Value.held(index, held[index].name(), held[index].bytes()));
            }
            if (times[index] != null) {
                byte[] name = kept[index] == null ? NAMELESS : kept[index].name();
                values.add(Value.keep(index, name, (int) Math.min(0xffff_ffffL, Math.max(1, milliseconds(times[index])))));
            }
        }
        return values;
    }

    private CallException.Argument wrong(String text) {
        return new CallException.Argument("`" + routine.name() + "`: " + text);
    }

    private CallException.Argument wrong(int index, String text) {
        return wrong("`" + routine.params().get(index).name() + "` " + text);
    }

    /** Accepts a value for an input parameter. */
    private void take(int index, Object value) {
        Param param = routine.params().get(index);
        if (!param.mode().isSent()) {
            return;
        }
        if (param.isArray()) {
            if (value == null) {
                throw wrong(index, "is missing");
            } else if (value instanceof HeldArray there) {
                held[index] = there;
                return;
            }
            arrays[index] = given(index, value);
        } else if (param.isText()) {
            text(index, value);
        } else if (param.type() instanceof Type.File) {
            if (!(value instanceof Path || value instanceof byte[])) {
                throw wrong(index, "is a file: give a Path or its content (byte[]), " + kind(value) + " is neither");
            }
            sources[index] = value;
        } else if (param.type() instanceof Type.Callback callback) {
            if (!(value instanceof Callback function)) {
                throw wrong(index, "is a function: give a Callback, " + kind(value) + " is none");
            }
            Routine declared = new Routine(param.name(), "", callback.params(), null, false, -1);
            functions.add(new Functions.Function(index, declared, function));
        } else if (value != null) {
            scalar(index, param, value);
        }
    }

    private static String kind(Object value) {
        return value == null ? "nothing" : value.getClass().getSimpleName();
    }

    private void scalar(int index, Param param, Object value) {
        try {
            scalars[index] = Arguments.scalar(param.scalar(), value);
        } catch (ArithmeticException beyond) {
            throw wrong(index, "is " + beyond.getMessage());
        }
        if (scalars[index] == null) {
            throw wrong(index, "is a scalar (" + param.scalar() + "), " + kind(value) + " is none");
        }
    }

    private void text(int index, Object value) {
        if (value == null) {
            if (routine.params().get(index).defaultValue() == null) {
                throw wrong(index, "has no value and no default");
            }
        } else if (value instanceof CharSequence || value instanceof Character) {
            texts[index] = value.toString();
            String wrong = Arguments.wrongText(texts[index]);
            if (wrong != null) {
                throw wrong(index, "is " + wrong);
            }
        } else {
            throw wrong(index, "is a text, " + value.getClass().getSimpleName() + " is none");
        }
    }

    private GivenArray given(int index, Object value) {
        Param param = routine.params().get(index);
        try {
            Object shaped = value instanceof double[][] rows ? Shaped.matrix(rows) : value;
            Shaped known = shaped instanceof Shaped it ? it : null;
            Object array = known == null ? shaped : known.array();
            Numbers numbers = Numbers.of(array);
            if (numbers == null) {
                throw wrong(index, "is an array of " + element(index) + ", " + kind(array) + " is none");
            }
            if (!numbers.fits(element(index))) {
                throw wrong(index, "has elements of " + numbers.kind() + ", the routine wants " + element(index));
            }
            long[] dims = known == null ? flat(param, numbers) : known.shape().dims();
            return new GivenArray(numbers, dims, known == null ? param.order() : known.order());
        } catch (IllegalArgumentException | ArithmeticException uneven) {
            throw wrong(index, "is no matrix: " + uneven.getMessage());
        }
    }

    private Element element(int index) {
        return ((Type.Number) routine.params().get(index).type()).element();
    }

    /** The shape of a vector that was given without one; null: for a matrix it is unknown. */
    private static long[] flat(Param param, Numbers numbers) {
        Element element = ((Type.Number) param.type()).element();
        return param.dims().size() == 1 ? new long[] {numbers.bytes() / element.size()} : null;
    }

    private Plan plan(long limit) {
        long[][] shapes = new long[arrays.length][];
        for (int index = 0; index < arrays.length; index++) {
            shapes[index] = held[index] != null ? held[index].dims() : arrays[index] == null ? null : arrays[index].dims();
        }
        routine.deduce(scalars, shapes);
        try {
            return routine.plan(scalars, texts, limit);
        } catch (PlanException misfit) {
            if (misfit.kind() == PlanException.Kind.TOO_LARGE) {
                throw new CallException.TooLarge("`" + routine.name() + "`: " + misfit.getMessage(), 0);
            }
            throw wrong(misfit.getMessage());
        }
    }

    /** Checks an array against the plan. */
    private void check(int index, Argument argument, GivenArray given) {
        long[] dims = argument.sizes();
        long[] shape = given.dims();
        if (shape != null && shape.length == dims.length - 1) {
            // A vector may stand for a matrix of one column.
            shape = Arrays.copyOf(shape, dims.length);
            shape[dims.length - 1] = 1;
        }
        long elements = given.numbers().bytes() / argument.element().size();
        boolean whole = given.numbers().bytes() % argument.element().size() == 0;
        if (shape != null && !Arrays.equals(shape, dims)) {
            throw wrong(index, "has the shape " + Arrays.toString(given.dims()) + ", the routine wants "
                    + Arrays.toString(dims));
        }
        if (!whole || elements != argument.elements()) {
            throw wrong(index, "has " + (whole ? "" : "a part more than ") + elements + " elements, the routine wants "
                    + argument.elements() + " (" + Arrays.toString(dims) + ")");
        }
    }

    /** Whether an array has the routine's memory order, so that its one run is sent and received without a copy. */
    private static boolean isStraight(Argument argument, GivenArray given) {
        long thick = argument.axes().stream().map(Axis::size).filter(size -> size > 1).count();
        return argument.section().isSingle() && (given.order() == argument.param().order() || thick < 2);
    }

    private static long milliseconds(Duration time) {
        return Timer.nanoseconds(time) / 1_000_000;
    }

    private void keep(int index, Argument argument) {
        if (holder == null) {
            throw wrong(index, "cannot stay: methods of objects leave no arrays at their servers");
        } else if (argument.returned() != argument.bytes()) {
            throw wrong(index, "travels in pieces, so it cannot stay at the server");
        }
        if (holder.grid() == null) {
            kept[index] = new HeldArray(holder.connection(), argument);
        }
    }

    private void send(int index, Argument argument) {
        if (held[index] != null) {
            String misfit = held[index].misfit(holder, argument);
            if (misfit != null) {
                throw wrong(index, misfit);
            }
            if (holder.grid() != null) {
                // The call is sent when it has a place.
                held[index].retain();
                retained.add(held[index]);
            }
            return;
        }
        GivenArray given = arrays[index];
        check(index, argument, given);
        if (argument.sent() == 0) {
            return;
        }
        if (isStraight(argument, given)) {
            sends.add(Exchange.Send.of(index, given.numbers(), argument.section().first(), argument.sent()));
        } else {
            Copies copies = copies(index, argument, given.order());
            ByteBuffer packed = room(index, argument.sent());
            given.numbers().pack(copies, argument.element(), packed);
            sends.add(Exchange.Send.of(index, packed));
        }
    }

    private Copies copies(int index, Argument argument, Order order) {
        try {
            return new Copies(argument, order);
        } catch (ArithmeticException beyond) {
            throw tooLong(index);
        }
    }

    private ByteBuffer room(int index, long bytes) {
        if (bytes > Integer.MAX_VALUE) {
            throw tooLong(index);
        }
        return ByteBuffer.allocate((int) bytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    private CallException.TooLarge tooLong(int index) {
        return new CallException.TooLarge("`" + routine.name() + "`: `" + routine.params().get(index).name()
                + "` has more elements than an array of Java can", 0);
    }

    private void receive(int index, Argument argument, GivenArray place) {
        GivenArray target = place == null ? fresh(index, argument) : place;
        check(index, argument, target);
        if (target.numbers().isReadOnly()) {
            throw wrong(index, "is to be written to, and is read-only");
        }
        results[index] = new Result.Array(target.numbers().owner(), argument, target.order());
        if (argument.returned() == 0) {
            return;
        }
        if (isStraight(argument, target)) {
            overwrites |= place != null && isSent(place.numbers().owner());
            targets.add(Exchange.Target.of(
                    index, target.numbers(), argument.section().first(), argument.returned()));
        } else {
            copies(index, argument, target.order());
            ByteBuffer packed = room(index, argument.returned());
            targets.add(Exchange.Target.of(index, packed));
            unpacks.add(new PackedResult(argument, packed, target));
        }
    }

    /** Whether a sent array is this one, or may share its memory. */
    private boolean isSent(Object owner) {
        for (GivenArray given : arrays) {
            Object sent = given == null ? null : given.numbers().owner();
            if (sent != null && (sent == owner || sent instanceof java.nio.Buffer || owner instanceof java.nio.Buffer)) {
                return true;
            }
        }
        return false;
    }

    /** A new array. If only a section comes back, the rest has the values that were sent. */
    private GivenArray fresh(int index, Argument argument) {
        GivenArray sent = arrays[index];
        boolean partial = argument.returned() < argument.bytes();
        try {
            if (sent != null && partial) {
                return new GivenArray(sent.numbers().copy(argument.element()), argument.sizes(), sent.order());
            }
            Numbers numbers = Numbers.allocate(argument.element(), argument.elements());
            return new GivenArray(numbers, argument.sizes(), sent == null ? argument.param().order() : sent.order());
        } catch (ArithmeticException beyond) {
            throw tooLong(index);
        }
    }

    /** The result of the call; everything has come. */
    Result result(ResultHead head) {
        if (head.values().stream().filter(value -> value.file() != null).count() != files.expected()) {
            throw new CallException.Server("the result of `" + routine.name() + "` lacks a file", 0);
        }
        for (PackedResult unpack : unpacks) {
            Copies copies = new Copies(unpack.argument(), unpack.place().order());
            unpack.place().numbers().unpack(copies, unpack.argument().element(), unpack.packed());
        }
        Result result = Result.of(routine, results, files.results(), kept, head);
        files.finish();
        given = true;
        if (routine.status() >= 0) {
            Scalar status = result.scalarAt(routine.status());
            Long value = status == null ? null : status.asInteger();
            if (value != null && value != 0) {
                throw new CallException.Status(
                        routine.name(), routine.params().get(routine.status()).name(), value, result);
            }
        }
        return result;
    }
}
