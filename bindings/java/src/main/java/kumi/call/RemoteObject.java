package kumi.call;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.CompletableFuture;
import kumi.call.idl.Routine;

/**
 * An object of a class: a server process that keeps the state of the class from call to call.
 *
 * <ul>
 * <li>Its calls run one after the other, in the order in which their arguments arrived. Threads may share it.
 * <li>It ends when it is closed or its client is closed. It also ends when one of its running calls crashes, is cancelled or exceeds
 * its time limit.
 * </ul>
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
    /** The request that created it; its stream identifies the object. */
    private final Exchange made;
    private final String name;

    /** The object that a CREATE request has made, with a client of its connection. */
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
     * The description of a method. The client fetches it once.
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
     * @throws CallException the call failed. {@link CallException.ObjectLost}: the object no longer exists, and the method has not
     *     run
     */
    public Result call(String method, Object... arguments) {
        return prepare(method).add(arguments).call();
    }

    /**
     * Calls a method without waiting; see {@link Call#callAsync}. The first call of a method waits for its description. Cancelling a
     * running call ends the object.
     */
    public CompletableFuture<Result> callAsync(String method, Object... arguments) {
        return prepare(method).add(arguments).callAsync();
    }

    /** Prepares a call of a method. If the call exceeds its time limit while it runs, the object ends. */
    public Call prepare(String method) {
        return new Call(client, routine(method), this);
    }

    /** Whether the object has ended, as far as the client knows. */
    public boolean isLost() {
        return made.over;
    }

    /** Ends the object. Calls in progress fail. Closing it again has no effect. */
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
     * @throws CallException.Argument the routine belongs to another class, or the call asks for what only the object may
     * @throws CallException.ObjectLost the object has ended
     */
    static void check(Routine routine, Call.CallSettings settings) {
        RemoteObject object = settings.object();
        String wanted = routine.className();
        if (object == null) {
            if (!wanted.isEmpty()) {
                throw new CallException.Argument("`" + routine.name() + "` is called on objects: make an object of `" + wanted
                        + "` (KumiClient.object)");
            }
        } else if (!object.name.equals(wanted) || routine.isConstructor()) {
            throw new CallException.Argument("`" + routine.name() + "` is no method of `" + object.name + "`, of which the object is");
        } else if (settings.said().resources() != null) {
            throw new CallException.Argument("`" + routine.name() + "` has the threads and the memory with which its object was made:"
                    + " ask for them there (KumiClient.object)");
        } else {
            object.check();
        }
    }

    /**
     * Checks that the object exists, as far as the client knows.
     *
     * @throws CallException.ObjectLost the object has ended
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
