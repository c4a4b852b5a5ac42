package kumi.call;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/**
 * A call that is being put together, of {@link KumiClient#prepare} or {@link RemoteObject#prepare}.
 *
 * <pre>{@code
 * Result result = client.prepare("dmmul").set("A", a).set("B", b).set("n", n).into("C", c).within(ofSeconds(30)).call();
 * }</pre>
 */
public final class Call {
    private final KumiClient client;
    private final String routine;
    /** On which a method is called; null: a routine is. */
    private final RemoteObject object;
    private final Arguments arguments = new Arguments();
    private Duration time;
    private int priority;

    /** How long a call may take, or null, its priority, and the object on which it is, or null. */
    record CallSettings(Duration time, int priority, RemoteObject object) {}

    Call(KumiClient client, String routine, RemoteObject object) {
        this.client = client;
        this.routine = routine;
        this.object = object;
    }

    /** Arguments that are sent, in the order of the description, without those that are set by their names. */
    public Call add(Object... values) {
        arguments.add(values);
        return this;
    }

    /** An argument that is sent; null: its default. */
    public Call set(String param, Object value) {
        arguments.set(param, value);
        return this;
    }

    /**
     * A function of the program; {@link #set} with a lambda.
     *
     * <pre>{@code client.prepare("integrate").set("n", 100).function("f", it -> it.set("y", Math.sin(it.real("x")))).call();}</pre>
     */
    public Call function(String param, Callback function) {
        return set(param, function);
    }

    /**
     * Where a result is received: an array or buffer, lent until the call is over; otherwise it is a new array. Of a file the path
     * ({@link java.nio.file.Path}) to which it is written when the call has ended well; otherwise its content comes back.
     */
    public Call into(String param, Object place) {
        arguments.into(param, place);
        return this;
    }

    /** An array, or the path of a file, that is sent and into which the result is received: it changes in place. */
    public Call inout(String param, Object place) {
        return set(param, place).into(param, place);
    }

    /** The time that the call may take; the server stops it then. */
    public Call within(Duration time) {
        this.time = checked(time);
        return this;
    }

    /**
     * The call's place among those of its user that wait at a metaserver, 0 (unless given) to 9, which is the first; the metaserver
     * lowers it to what it allows the user. A server without a metaserver takes none.
     */
    public Call priority(int priority) {
        this.priority = checked(priority);
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

    private CallSettings wish() {
        return new CallSettings(time, priority, object);
    }

    /**
     * Calls, and waits for the end. Functions that the routine calls run in this thread meanwhile.
     *
     * @throws CallException it failed; of arguments that do not fit nothing was sent
     */
    public Result call() {
        return client.run(routine, arguments, wish());
    }

    /**
     * Calls. The future ends with the result or a {@link CallException}; when it is cancelled, or ends in another way, so
     * is the call. Arrays are lent until then. Functions that the routine calls run in threads that are there for them.
     */
    public CompletableFuture<Result> callAsync() {
        return client.start(routine, arguments, wish());
    }
}
