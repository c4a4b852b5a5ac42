package kumi.call.graph;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import kumi.call.graph.CallState.Kind;

/**
 * The calls of a transaction, each with the earlier calls whose results it reads.
 *
 * <p>Calls are numbered in the order of recording. Nothing is changed in place, so a call only depends on those that it reads. It is the
 * graph of {@code core/broker} for such calls, and runs the vectors of that. Not safe for several threads at once.
 */
public final class CallGraph {
    /** Most calls. */
    private static final int MOST_CALLS = 65_536;
    /** Most results that a call reads. */
    private static final int MOST_READS = 1024;
    /** Most dependencies. */
    private static final int MOST_EDGES = 1 << 20;

    /** The graph would have too many calls or dependencies. */
    public static final class TooLarge extends Exception {
        private static final long serialVersionUID = 1;

        private TooLarge() {
            super("the transaction has too many calls, arguments or dependencies; cut it into several");
        }
    }

    private static final class Vertex {
        private final String name;
        /** The calls that it reads. */
        private final TreeSet<Integer> after;
        /** All calls that read it. */
        private final List<Integer> readers = new ArrayList<>();
        /** Calls that wait for it. One may be there more than once. */
        private List<Integer> before = new ArrayList<>();
        /** How many calls before it are open. A skipped call also stays open until they are over. */
        private int open;
        private CallState state;

        Vertex(String name, TreeSet<Integer> after) {
            this.name = name;
            this.after = after;
        }

        /** Whether calls behind it wait for it. */
        boolean isOpen() {
            return state.isOpen() || state.kind() == Kind.SKIPPED && open > 0;
        }
    }

    private final List<Vertex> vertices = new ArrayList<>();
    private final TreeSet<Integer> ready = new TreeSet<>();
    private int edges;
    private int open;

    /**
     * Adds a call behind those that are there.
     *
     * @param reads the calls whose results it reads
     * @return its number
     * @throws TooLarge there would be too many; nothing is recorded then
     */
    public int record(String name, Collection<Integer> reads) throws TooLarge {
        TreeSet<Integer> after = new TreeSet<>(reads);
        if (vertices.size() >= MOST_CALLS || reads.size() > MOST_READS || edges + after.size() > MOST_EDGES) {
            throw new TooLarge();
        }
        int node = vertices.size();
        if (!after.isEmpty() && (after.first() < 0 || after.last() >= node)) {
            throw new IllegalArgumentException("a call reads earlier ones, not " + after);
        }
        Vertex vertex = new Vertex(name, after);
        int failed = -1;
        for (int other : after) {
            Vertex read = vertices.get(other);
            read.readers.add(node);
            if (read.isOpen()) {
                read.before.add(node);
                vertex.open++;
            }
            failed = read.state.isUnmade() ? other : failed;
        }
        edges += after.size();
        vertices.add(vertex);
        turn(node, failed >= 0 ? CallState.skipped(failed) : vertex.open == 0 ? CallState.READY : CallState.WAITING);
        return node;
    }

    /** Number of calls. */
    public int size() {
        return vertices.size();
    }

    /** The state of a call. */
    public CallState state(int node) {
        return vertices.get(node).state;
    }

    private Kind kind(int node) {
        return vertices.get(node).state.kind();
    }

    /** The routine of a call. */
    public String name(int node) {
        return vertices.get(node).name;
    }

    /** The first call behind this one that can be started; -1: there is none. Before the first call is -1. */
    public int nextReady(int node) {
        Integer next = ready.higher(node);
        return next == null ? -1 : next;
    }

    /** Whether all calls are over. */
    public boolean isOver() {
        return open == 0;
    }

    private void turn(int node, CallState state) {
        Vertex vertex = vertices.get(node);
        open += (state.isOpen() ? 1 : 0) - (vertex.state != null && vertex.state.isOpen() ? 1 : 0);
        vertex.state = state;
        if (state.kind() == Kind.READY) {
            ready.add(node);
        } else {
            ready.remove(node);
        }
    }

    private void expect(int node, Kind kind) {
        if (kind(node) != kind) {
            throw new IllegalStateException("call " + node + " of the transaction is not in a state for this");
        }
    }

    /**
     * A call runs.
     *
     * @throws IllegalStateException it is not ready
     */
    public void start(int node) {
        expect(node, Kind.READY);
        turn(node, CallState.RUNNING);
    }

    /**
     * A call has ended at a server.
     *
     * @throws IllegalStateException it does not run
     */
    public void finish(int node, int server) {
        expect(node, Kind.RUNNING);
        turn(node, CallState.done(server));
        release(node);
    }

    /**
     * A call has failed. Those that would read its results are skipped.
     *
     * @throws IllegalStateException it does not run
     */
    public void fail(int node, String why) {
        expect(node, Kind.RUNNING);
        turn(node, CallState.failed(why));
        skipReaders(node);
        release(node);
    }

    /**
     * The results of a call are lost for good. Calls that would have read them are skipped.
     *
     * @throws IllegalStateException it has not ended
     */
    public void markLost(int node, String why) {
        expect(node, Kind.DONE);
        turn(node, CallState.failed(why));
        skipReaders(node);
    }

    /**
     * A call that runs or has ended is to run again. It waits for open calls before it, and calls behind it that have not started wait
     * for it. So those whose results it reads may be restarted earlier or later.
     *
     * @throws IllegalStateException it neither runs nor has ended
     */
    public void restart(int node) {
        Kind was = kind(node);
        if (was != Kind.RUNNING) {
            expect(node, Kind.DONE);
        }
        Vertex vertex = vertices.get(node);
        vertex.open = 0;
        for (int other : vertex.after) {
            if (vertices.get(other).isOpen()) {
                vertices.get(other).before.add(node);
                vertex.open++;
            }
        }
        turn(node, vertex.open == 0 ? CallState.READY : CallState.WAITING);
        if (was == Kind.DONE) {
            holdBack(node);
        }
    }

    /** Has calls behind this one wait for it if they have not started, those behind skipped calls too. */
    private void holdBack(int first) {
        Deque<Integer> held = new ArrayDeque<>(List.of(first));
        while (!held.isEmpty()) {
            int node = held.removeLast();
            for (int other : vertices.get(node).readers) {
                Vertex behind = vertices.get(other);
                boolean waits = behind.state.kind() == Kind.WAITING || behind.state.kind() == Kind.READY;
                if (!waits && behind.state.kind() != Kind.SKIPPED) {
                    continue;
                }
                behind.open++;
                vertices.get(node).before.add(other);
                if (waits) {
                    turn(other, CallState.WAITING);
                } else if (behind.open == 1) {
                    held.addLast(other);
                }
            }
        }
    }

    /** Cancels all calls that have not started. Those that run have to be stopped. */
    public void cancel() {
        for (int node = 0; node < vertices.size(); node++) {
            if (kind(node) == Kind.WAITING || kind(node) == Kind.READY) {
                turn(node, CallState.CANCELLED);
            }
        }
    }

    /** Ends the wait of calls for this one. */
    private void release(int first) {
        Deque<Integer> over = new ArrayDeque<>(List.of(first));
        while (!over.isEmpty()) {
            Vertex vertex = vertices.get(over.removeLast());
            List<Integer> before = vertex.before;
            vertex.before = new ArrayList<>();
            for (int next : before) {
                Vertex behind = vertices.get(next);
                behind.open = Math.max(0, behind.open - 1);
                if (behind.open == 0 && behind.state.kind() == Kind.WAITING) {
                    turn(next, CallState.READY);
                } else if (behind.open == 0 && behind.state.kind() == Kind.SKIPPED) {
                    over.addLast(next);
                }
            }
        }
    }

    /** Skips the readers of a call whose results will not be made, and their readers. */
    private void skipReaders(int first) {
        Set<Integer> unmade = new HashSet<>(Set.of(first));
        // Calls come behind those that they read, so one pass in the order of recording reaches all.
        TreeSet<Integer> next = new TreeSet<>(vertices.get(first).readers);
        while (!next.isEmpty()) {
            int node = next.pollFirst();
            Vertex vertex = vertices.get(node);
            if (vertex.state.kind() != Kind.WAITING && vertex.state.kind() != Kind.READY) {
                continue;
            }
            int from = vertex.after.stream().filter(unmade::contains).findFirst().orElseThrow();
            turn(node, CallState.skipped(from));
            unmade.add(node);
            next.addAll(vertex.readers);
            if (vertex.open == 0) {
                release(node);
            }
        }
    }

    /** The calls from the failed one to a skipped one; for any other call only the call itself. */
    private List<Integer> failurePath(int node) {
        List<Integer> path = new ArrayList<>(List.of(node));
        for (int at = node; kind(at) == Kind.SKIPPED; path.add(at)) {
            at = state(at).number();
        }
        Collections.reverse(path);
        return path;
    }

    /** What came of a call, in a sentence. */
    public String explain(int node) {
        String call = "call " + node + " (" + name(node) + ")";
        return switch (kind(node)) {
            case WAITING -> call + " waits for others";
            case READY -> call + " can be started";
            case RUNNING -> call + " runs";
            case DONE -> call + " has ended";
            case FAILED -> call + " failed: " + state(node).why();
            case CANCELLED -> call + " was cancelled";
            case SKIPPED -> {
                List<Integer> path = failurePath(node);
                List<String> steps = path.stream().map(one -> one + " (" + name(one) + ")").toList();
                CallState first = state(path.get(0));
                yield call + " did not run, because of " + String.join(" -> ", steps) + ": "
                        + (first.kind() == Kind.FAILED ? first.why() : "it was cancelled");
            }
        };
    }
}
