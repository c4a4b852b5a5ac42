package kumi.call;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import kumi.call.wire.TraceContext;

/**
 * A call in preparation, from {@link KumiClient#prepare} or {@link RemoteObject#prepare}.
 *
 * <pre>{@code
 * Result result = client.prepare("dmmul").set("A", a).set("B", b).set("n", n).into("C", c).within(ofSeconds(30)).call();
 * }</pre>
 */
public final class Call {
    private final KumiClient client;
    private final String routine;
    /** The object whose method is called; null: a routine is called. */
    private final RemoteObject object;
    private final Arguments arguments = new Arguments();
    private Duration time;
    private int priority;
    private CallOutput output;
    private Resources resources;
    private TraceContext trace;

    /** Time limit or null, priority, object of a method call or null, what is said of the call, and what it inherits. */
    record CallSettings(Duration time, int priority, RemoteObject object, CallMetadata said, InheritedContext context) {
        /**
         * The time that is left for it; null: it has no limit.
         *
         * @throws CallException.TimedOut none: the time of the call around it is over
         */
        Duration limit(String name) {
            return context.limit(time, name);
        }
    }

    Call(KumiClient client, String routine, RemoteObject object) {
        this.client = client;
        this.routine = routine;
        this.object = object;
    }

    /** Sets input arguments in the order of the description. Arguments that are set by name are left out here. */
    public Call add(Object... values) {
        arguments.add(values);
        return this;
    }

    /** Sets an input argument; null: its default. */
    public Call set(String param, Object value) {
        arguments.set(param, value);
        return this;
    }

    /**
     * Sets a callback; like {@link #set} with a lambda.
     *
     * <pre>{@code client.prepare("integrate").set("n", 100).function("f", it -> it.set("y", Math.sin(it.real("x")))).call();}</pre>
     */
    public Call function(String param, Callback function) {
        return set(param, function);
    }

    /**
     * Sets the destination of a result. Without one the result is a new array, or the content of a file.
     *
     * <ul>
     * <li>An array or buffer belongs to the call until it is over.
     * <li>A file is written to its {@link java.nio.file.Path} when the call has succeeded.
     * </ul>
     */
    public Call into(String param, Object place) {
        arguments.into(param, place);
        return this;
    }

    /**
     * Leaves a result at the server, as long as the server allows (an hour by default). It does not come back:
     * {@link Result#held} is a reference to it, which later calls of this client take as an argument. Through a metaserver these run at
     * that server. Not for methods of objects.
     */
    public Call keep(String param) {
        return keep(param, Duration.ofMillis(0xffff_ffffL));
    }

    /** Leaves a result at the server for this time after the end of the call; see {@link #keep(String)}. */
    public Call keep(String param, Duration time) {
        arguments.keep(param, checked(time));
        return this;
    }

    /** Sets an array, or the path of a file, that is sent and then replaced by the result. */
    public Call inout(String param, Object place) {
        return set(param, place).into(param, place);
    }

    /**
     * Sets the time limit of the call. The server stops a call that exceeds it. A call that a {@link Callback} makes ends within the time
     * of the call around it, too; see {@link CallContext#remaining}.
     */
    public Call within(Duration time) {
        this.time = checked(time);
        return this;
    }

    /**
     * Sets the priority among the user's calls that wait at a metaserver: 0 (the default) to 9 (first). The metaserver lowers it
     * to the user's limit. Without a metaserver only 0 is allowed.
     */
    public Call priority(int priority) {
        this.priority = checked(priority);
        return this;
    }

    /**
     * Sets where the output of the routine goes: what it prints, also if the call fails. A server that does not know of this sends
     * none. Of a call that runs again elsewhere, the output of each attempt comes.
     */
    public Call output(CallOutput output) {
        this.output = output;
        return this;
    }

    /**
     * Asks for threads and memory. A server that does not give them refuses the call, and a metaserver sends it to another. An object has
     * what it was made with, so calls of methods cannot ask.
     */
    public Call resources(Resources resources) {
        this.resources = resources;
        return this;
    }

    /**
     * Sets the call's place in a trace, as OpenTelemetry and W3C Trace Context write it. Without it, or with null: {@link CallContext#traceparent}.
     *
     * @throws IllegalArgumentException the text is no {@code traceparent}
     */
    public Call traceparent(String traceparent) {
        this.trace = traceparent == null ? null : TraceContext.parse(traceparent);
        return this;
    }

    static Duration checked(Duration time) {
        if (time.isNegative() || time.isZero()) {
            throw new IllegalArgumentException("a call takes more time than " + time);
        }
        return time;
    }

    static int checked(int priority) {
        if (priority < 0 || priority > 9) {
            throw new IllegalArgumentException("a priority is 0 to 9, not " + priority);
        }
        return priority;
    }

    private CallSettings settings() {
        InheritedContext context = InheritedContext.ofThisThread();
        CallMetadata said = new CallMetadata(output, resources, trace != null ? trace : context.trace());
        return new CallSettings(time, priority, object, said, context);
    }

    /**
     * Calls and waits. Callbacks run in this thread meanwhile.
     *
     * @throws CallException the call failed. If arguments do not fit, nothing was sent
     */
    public Result call() {
        return client.run(routine, arguments, settings());
    }

    /**
     * Calls without waiting. The future completes with the result or a {@link CallException}. Arrays belong to the call until then.
     * Cancelling or completing the future cancels the call. Callbacks run in background threads.
     */
    public CompletableFuture<Result> callAsync() {
        return client.start(routine, arguments, settings());
    }
}
