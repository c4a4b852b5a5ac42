package kumi.call;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.CompletableFuture;
import kumi.call.idl.Routine;

/**
 * An object of a class: a process of the server that keeps the class' state from call to call. Its calls run one after the other, in the
 * order in which their arguments had come; threads may share it. It ends when it is closed, with its client (one that nobody closes not
 * before), and when one of its calls crashes, is cancelled or takes too long while it runs.
 *
 * <pre>{@code
 * try (RemoteObject counter = client.object("counter")) {
 *     counter.call("add", 3);
 *     long total = counter.call("total").integer("t");
 * }
 * }</pre>
 */
public final class RemoteObject implements AutoCloseable {
    private final KumiClient client;
    private final Connection connection;
    /** The wish for it, whose stream is the object as long as that is there. */
    private final Exchange made;
    private final String name;

    /** The object that was asked for with CREATE, which is there, by a client of the connection that has it. */
    RemoteObject(KumiClient client, Connection connection, Exchange made, String name) {
        this.client = client;
        this.connection = connection;
        this.made = made;
        this.name = name;
    }

    /** Its class. */
    public String className() {
        return name;
    }

    /** The name of the server where it is. */
    public String server() {
        return client.server();
    }

    /**
     * What a method takes and gives; asked for once.
     *
     * @throws CallException there is no such method, or the connection is lost
     */
    public Routine method(String method) {
        return client.routine(routine(method));
    }

    /** The name by which the server knows a method. */
    private String routine(String method) {
        return name + "." + method;
    }

    /**
     * Calls a method and waits; otherwise as {@link KumiClient#call}.
     *
     * @throws CallException it failed; {@link CallException.ObjectLost}: the object is no more, and the method has not run
     */
    public Result call(String method, Object... arguments) {
        return prepare(method).add(arguments).call();
    }

    /**
     * Calls a method without waiting, but for its description when it is called for the first time; see {@link Call#callAsync}. A call
     * that is cancelled while it runs ends the object.
     */
    public CompletableFuture<Result> callAsync(String method, Object... arguments) {
        return prepare(method).add(arguments).callAsync();
    }

    /** A call of a method that is put together piece by piece; if its time is over while it runs the object ends. */
    public Call prepare(String method) {
        return new Call(client, routine(method), this);
    }

    /** Whether it is no more, as far as is known here. */
    public boolean isLost() {
        return made.over;
    }

    /** Ends it, and what it runs: calls that are under way fail. Does nothing after its end. */
    @Override
    public void close() {
        connection.abandon(made);
    }

    @Override
    public String toString() {
        return "object of " + name + " at " + server();
    }

    /**
     * Checks that a routine can be called on an object, or on none (null).
     *
     * @throws CallException.Argument it is of another class
     * @throws CallException.ObjectLost the object is no more
     */
    static void check(Routine routine, RemoteObject object) {
        String wanted = routine.className();
        if (object == null) {
            if (!wanted.isEmpty()) {
                throw new CallException.Argument("`" + routine.name() + "` is called on objects: make an object of `" + wanted
                        + "` (KumiClient.object)");
            }
        } else if (!object.name.equals(wanted) || routine.isConstructor()) {
            throw new CallException.Argument("`" + routine.name() + "` is no method of `" + object.name + "`, of which the object is");
        } else {
            object.check();
        }
    }

    /**
     * Checks that it is there, as far as is known here.
     *
     * @throws CallException.ObjectLost it is no more
     */
    void check() {
        if (made.over) {
            String why = made.why == null ? "it was closed" : made.why.getMessage();
            throw new CallException.ObjectLost("the object of `" + name + "` is no more: " + why, 0);
        }
    }

    /** The body of a call's head, on this object. */
    byte[] head(byte[] head) {
        ByteBuffer out = ByteBuffer.allocate(4 + head.length).order(ByteOrder.LITTLE_ENDIAN);
        return out.putInt(made.stream).put(head).array();
    }
}
