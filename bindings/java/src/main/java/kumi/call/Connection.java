package kumi.call;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import java.util.function.IntFunction;
import java.util.stream.Stream;
import kumi.call.Exchange.Answer;
import kumi.call.wire.Failure;
import kumi.call.wire.ConnectionState;
import kumi.call.wire.MetaserverMessages;
import kumi.call.wire.Protocol;
import kumi.call.wire.ProtocolException;
import kumi.call.wire.ServerHello;
import kumi.call.wire.Sink;
import kumi.call.wire.Values.CallbackHead;
import kumi.call.wire.Values.ResultHead;

/**
 * A connection: one thread reads, one writes, and callers wait for futures. Arrays are written under the lock, so nothing writes to
 * the arrays of a finished exchange. Interrupts of callers affect neither thread.
 */
final class Connection {
    /** Most bytes of one read. */
    private static final int INPUT = 256 << 10;
    /** A chunk, and small frames before it. */
    private static final int OUTPUT = Protocol.CHUNK + 2 * Protocol.MOST_REQUEST;
    /** A header, and small frames before or after a request: of a place a trace, a reason and reports, of a call its pass and what is said. */
    private static final int SMALL = 2048;
    /** How long to wait for the server's last frames after a write has failed. */
    private static final Duration LAST_WORDS = Duration.ofSeconds(1);

    /** The outcome of a callback. */
    private record CallbackResult(Exchange exchange, CallbackInvocation.CallbackOutcome ended) {}

    /** The address to which it leads. */
    final String address;
    private final Transport transport;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition work = lock.newCondition();
    private final CompletableFuture<ServerHello> hello = new CompletableFuture<>();
    private final CompletableFuture<Void> gone = new CompletableFuture<>();
    private final ConnectionState incoming = new ConnectionState(new Listener());
    /** Open streams, each with the exchange that waits for it. */
    private final Map<Integer, Exchange> open = new HashMap<>();
    /** Requests that have not begun. */
    private final Deque<Exchange> queue = new ArrayDeque<>();
    private final Deque<byte[]> control = new ArrayDeque<>();
    /** Outcomes of callbacks, to be sent. */
    private final Deque<CallbackResult> backs = new ArrayDeque<>();
    private final PingState signs = new PingState();
    /** Notifications of callers, delivered without the lock. */
    private final List<Runnable> news = new ArrayList<>();
    private int mostStreams = 1;
    private String broken;
    /** Why the server is closing the connection. */
    private String ended;

    Connection(Transport transport, byte[] greeting, String address) {
        this.address = address;
        this.transport = transport;
        control.add(greeting);
        BackgroundThreads.start(this::read, "kumi-call reader of " + address);
        BackgroundThreads.start(this::write, "kumi-call writer to " + address);
    }

    /** The server's hello. */
    CompletableFuture<ServerHello> hello() {
        return hello;
    }

    /** Completes when the connection is broken. */
    CompletableFuture<Void> gone() {
        return gone;
    }

    /** Begins an exchange as soon as the server accepts another stream. */
    void submit(Exchange exchange) {
        lock.lock();
        try {
            if (broken != null) {
                throw new CallException.ConnectionLost(lost(), true);
            }
            if (exchange.kind == Protocol.CREATE && objects() >= mostStreams - 1) {
                // Otherwise objects could use all streams, and no call on them could begin.
                throw new CallException.Busy("this connection has as many objects as it may have: " + objects());
            }
            queue.add(exchange);
            work.signal();
        } finally {
            lock.unlock();
        }
    }

    /** Objects that exist or were requested. */
    private long objects() {
        return Stream.concat(queue.stream(), open.values().stream()).filter(one -> one.kind == Protocol.CREATE).count();
    }

    private String lost() {
        return "the connection to the server was lost: " + broken;
    }

    /** The caller no longer waits for an exchange: its arrays are not written any more, and the server is asked to end it. */
    void abandon(Exchange exchange) {
        abandonIf(exchange, () -> true);
    }

    /** Abandons the exchange if the condition holds; incoming frames cannot change it meanwhile. Returns whether it held. */
    boolean abandonIf(Exchange exchange, BooleanSupplier condition) {
        return under(() -> {
            boolean holds = condition.getAsBoolean();
            if (holds) {
                leave(exchange, true);
            }
            return holds;
        });
    }

    /** The exchange has exceeded its time limit and is abandoned. True: its server does not read, and the connection is closed. */
    boolean late(Exchange exchange) {
        boolean stuck = exchange.stream != 0 && !exchange.sent && !exchange.over;
        abandon(exchange);
        if (stuck) {
            // Part of a frame has been sent, so no other frame can follow.
            fail("the server at " + address + " did not read what was sent in time");
        }
        return stuck;
    }

    /** Reports an attempt to a metaserver on the stream of its call; null: the stream is gone. False: the connection is lost. */
    boolean over(Exchange exchange, MetaserverMessages.AttemptReport over) {
        return tell(exchange, stream -> Protocol.over(stream, over));
    }

    /** Says why an attempt failed, on the stream of its call as long as that is there. Metaservers refuse an empty text. */
    void reason(Exchange exchange, MetaserverMessages.Ticket ticket, String why) {
        if (why != null && !why.isEmpty()) {
            tell(exchange, stream -> stream == 0 ? new byte[0] : Protocol.reason(stream, ticket, why));
        }
    }

    private boolean tell(Exchange exchange, IntFunction<byte[]> frame) {
        lock.lock();
        try {
            if (broken != null) {
                return false;
            }
            if (exchange != null && !exchange.over && exchange.stream == 0) {
                exchange.behind.add(frame);
            } else {
                control.add(frame.apply(exchange == null || exchange.over ? 0 : exchange.stream));
                work.signal();
            }
            return true;
        } finally {
            lock.unlock();
        }
    }

    /** The caller no longer waits for an exchange; the other side ends it unasked. */
    void forget(Exchange exchange) {
        under(() -> leave(exchange, false));
    }

    /** Whether nobody waits for an answer. Arrays that are to be dropped go with the connection, too. */
    boolean isIdle() {
        return under(() -> open.isEmpty() && queue.stream().allMatch(one -> one.kind == Protocol.DROP));
    }

    private boolean under(BooleanSupplier question) {
        lock.lock();
        try {
            return question.getAsBoolean();
        } finally {
            lock.unlock();
        }
    }

    /** Removes an exchange; returns whether it was open. Needs the lock. */
    private boolean leave(Exchange exchange, boolean cancel) {
        if (exchange.over) {
            return false;
        }
        exchange.over = true;
        if (exchange.stream == 0) {
            queue.remove(exchange);
            return true;
        }
        open.remove(exchange.stream);
        incoming.abandon(exchange.stream);
        if (cancel && exchange.isEndedByCancel()) {
            control.add(Protocol.cancel(exchange.stream));
            work.signal();
        }
        return true;
    }

    /** Fails an exchange whose data cannot be read or written here. */
    private void spoil(Exchange exchange, CallException why) {
        lock.lock();
        try {
            if (leave(exchange, true)) {
                news.add(() -> exchange.answer.completeExceptionally(why));
            }
        } finally {
            lock.unlock();
        }
    }

    /** {@link #spoil}, for a thread that does not notify callers otherwise. */
    private void unreadable(Exchange exchange, CallException why) {
        spoil(exchange, why);
        tell();
    }

    /** Sends the outcome of a callback, unless its call has ended. */
    private void giveBack(Exchange exchange, CallbackInvocation.CallbackOutcome ended) {
        lock.lock();
        try {
            if (!exchange.over && broken == null && incoming.returned(exchange.stream, ended.well())) {
                backs.add(new CallbackResult(exchange, ended));
                work.signal();
            }
        } finally {
            lock.unlock();
        }
    }

    /** Runs a callback in the thread for callbacks. */
    private void call(Exchange exchange, CallbackInvocation called) {
        try {
            exchange.functions.turns().accept(() -> {
                if (!exchange.over) {
                    CallbackInvocation.CallbackOutcome outcome = called.run();
                    // Nobody waits for one that is late: the server ends the call, and names the function.
                    if (!exchange.functions.context().isOver()) {
                        giveBack(exchange, outcome);
                    }
                }
            });
        } catch (RuntimeException | OutOfMemoryError none) {
            giveBack(exchange, CallbackInvocation.CallbackOutcome.failed("no thread is available for it: " + none));
        }
    }

    /** Sends a ping. */
    CompletableFuture<Void> ping() {
        lock.lock();
        try {
            if (broken != null) {
                throw new CallException.ConnectionLost(lost(), true);
            }
            control.add(Protocol.ping());
            work.signal();
            return signs.ask();
        } finally {
            lock.unlock();
        }
    }

    /** Whether the connection can take no new exchanges. */
    boolean isBroken() {
        return under(() -> broken != null);
    }

    /** Why it is broken; null: it is not. */
    String whyBroken() {
        return isBroken() ? lost() : null;
    }

    /** Closes the connection: open exchanges fail. */
    void fail(String why) {
        lock.lock();
        try {
            if (broken == null) {
                broken = why;
                String text = lost();
                List<Exchange> unsent = new ArrayList<>(queue);
                unsent.forEach(one -> end(one, new CallException.ConnectionLost(text, true)));
                List<Exchange> under = new ArrayList<>(open.values());
                under.forEach(one -> end(one, new CallException.ConnectionLost(text, false)));
                for (CompletableFuture<Void> sign = signs.came(); sign != null; sign = signs.came()) {
                    CompletableFuture<Void> none = sign;
                    news.add(() -> none.completeExceptionally(new CallException.ConnectionLost(text, true)));
                }
                news.add(() -> hello.completeExceptionally(new CallException.Connect(text, null)));
                news.add(() -> gone.complete(null));
                queue.clear();
                open.clear();
            }
            work.signalAll();
        } finally {
            lock.unlock();
        }
        transport.close();
        tell();
    }

    private void end(Exchange exchange, CallException error) {
        exchange.why = error;
        exchange.over = true;
        news.add(() -> exchange.answer.completeExceptionally(error));
    }

    /** Notifies callers, without the lock. */
    private void tell() {
        List<Runnable> told;
        lock.lock();
        try {
            if (news.isEmpty()) {
                return;
            }
            told = new ArrayList<>(news);
            news.clear();
        } finally {
            lock.unlock();
        }
        told.forEach(Runnable::run);
    }

    private void read() {
        ByteBuffer input = ByteBuffer.allocateDirect(INPUT).order(ByteOrder.LITTLE_ENDIAN);
        try {
            while (true) {
                if (transport.read(input) < 0) {
                    throw new IOException("the server closed it");
                }
                input.flip();
                int needed = digest(input);
                tell();
                if (ended != null) {
                    throw new IOException(ended);
                }
                if (needed > input.capacity()) {
                    // A long description or list that was requested; its length is within the protocol's limit.
                    input = ByteBuffer.allocate(needed).order(ByteOrder.LITTLE_ENDIAN).put(input);
                } else if (!input.hasRemaining() && input.capacity() > INPUT) {
                    input = ByteBuffer.allocateDirect(INPUT).order(ByteOrder.LITTLE_ENDIAN);
                } else {
                    input.compact();
                }
            }
        } catch (IOException gone) {
            fail(reason(gone));
        } catch (ProtocolException wrong) {
            fail("the server broke the protocol: " + wrong.getMessage());
        } catch (RuntimeException | Error wrong) {
            // Otherwise callers would wait for ever.
            fail("the thread that reads failed: " + wrong);
            throw wrong;
        }
    }

    private static String reason(IOException gone) {
        return gone.getMessage() == null ? gone.toString() : gone.getMessage();
    }

    private int digest(ByteBuffer input) throws IOException, ProtocolException {
        lock.lock();
        try {
            if (broken != null) {
                // Its caller already has a failure, so the answer is ignored.
                throw new IOException(broken);
            }
            incoming.take(input);
            return incoming.needed();
        } finally {
            lock.unlock();
        }
    }

    private void write() {
        ByteBuffer out = ByteBuffer.allocateDirect(OUTPUT).order(ByteOrder.LITTLE_ENDIAN);
        SendQueue sending = new SendQueue();
        try {
            while (gather(out.clear(), sending)) {
                ByteBuffer place = sending.fill(out, this::unreadable);
                if (place == null) {
                    transport.write(out.flip());
                } else {
                    transport.write(out.flip(), place);
                }
            }
        } catch (IOException gone) {
            // A last frame of the server explains more than this error; the reading thread finds it.
            Timer.after(LAST_WORDS, () -> fail(reason(gone)));
        } catch (RuntimeException | Error wrong) {
            fail("the thread that writes failed: " + wrong);
            throw wrong;
        }
    }

    /** Puts small frames and heads into {@code out}; waits until there is something to send. False: the connection has ended. */
    private boolean gather(ByteBuffer out, SendQueue sending) {
        lock.lock();
        try {
            while (broken == null && control.isEmpty() && backs.isEmpty() && sending.isEmpty() && !mayBegin()) {
                work.awaitUninterruptibly();
            }
            signs.sent();
            while (!control.isEmpty() && control.peek().length <= out.remaining()) {
                out.put(control.poll());
            }
            while (!backs.isEmpty() && backs.peek().ended().body().length + Protocol.HEADER <= out.remaining()) {
                CallbackResult back = backs.poll();
                sending.giveBack(back.exchange(), back.ended(), out);
            }
            while (mayBegin() && queue.peek().body.length + SMALL <= out.remaining()) {
                Exchange exchange = queue.poll();
                if (exchange.kind == Protocol.DROP) {
                    // In its turn: calls that read the array are before it.
                    out.put(Protocol.frame(exchange.kind, 0, exchange.body));
                    continue;
                }
                begin(exchange);
                exchange.put(out);
                sending.add(exchange);
            }
            return broken == null;
        } finally {
            lock.unlock();
        }
    }

    private boolean mayBegin() {
        return !queue.isEmpty() && hello.isDone() && incoming.open() < mostStreams;
    }

    private void begin(Exchange exchange) {
        exchange.stream = incoming.begin(exchange.kind);
        exchange.begun = System.nanoTime();
        for (Exchange.Target target : exchange.targets) {
            if (target.isFile()) {
                incoming.expectFile(exchange.stream, target.argument());
            } else {
                incoming.expect(exchange.stream, target.argument(), target.bytes());
            }
        }
        if (exchange.said.output() != null) {
            incoming.listen(exchange.stream);
        }
        open.put(exchange.stream, exchange);
    }

    /** Handles incoming frames; needs the lock. */
    private final class Listener implements Sink {
        @Override
        public void hello(ServerHello said) {
            mostStreams = Math.max(1, said.streams());
            if (said.refusal() == null) {
                news.add(() -> greet(said));
            } else {
                news.add(() -> hello.completeExceptionally(CallException.of(said.refusal(), null)));
            }
        }

        private void greet(ServerHello said) {
            hello.complete(said);
            lock.lock();
            try {
                work.signal();
            } finally {
                lock.unlock();
            }
        }

        private void answer(int stream, Answer answer) {
            Exchange exchange = open.remove(stream);
            if (exchange != null) {
                exchange.over = true;
                exchange.endAt = System.nanoTime();
                news.add(() -> exchange.answer.complete(answer));
            }
        }

        @Override
        public void description(int stream, long hash, byte[] json) {
            answer(stream, new Answer(null, hash, json, null));
        }

        @Override
        public void names(int stream, List<String> names) {
            answer(stream, new Answer(null, 0, null, names));
        }

        @Override
        public void result(int stream, ResultHead head) {
            Exchange exchange = open.get(stream);
            CallException wrong = exchange.begin(head);
            if (wrong != null) {
                spoil(exchange, wrong);
            }
        }

        @Override
        public void output(int stream, byte[] bytes, boolean isCut) {
            open.get(stream).said.output().add(bytes, isCut);
        }

        @Override
        public void data(int stream, int argument, ByteBuffer bytes) {
            Exchange exchange = open.get(stream);
            CallException wrong = exchange.put(argument, bytes);
            if (wrong != null) {
                spoil(exchange, wrong);
            }
        }

        @Override
        public void callback(int stream, CallbackHead head) {
            Exchange exchange = open.get(stream);
            try {
                if (exchange.functions == null) {
                    throw new CallbackInvocation.ArgumentMismatch("the server calls what is no function");
                }
                exchange.coming = exchange.functions.begin(head);
                incoming.accept(stream, exchange.coming.sizes());
            } catch (CallbackInvocation.ArgumentMismatch wrong) {
                incoming.refuse(stream);
                giveBack(exchange, CallbackInvocation.CallbackOutcome.failed(wrong.getMessage()));
            }
        }

        @Override
        public void called(int stream) {
            Exchange exchange = open.get(stream);
            CallbackInvocation called = exchange.coming;
            exchange.coming = null;
            news.add(() -> call(exchange, called));
        }

        @Override
        public void created(int stream) {
            Exchange exchange = open.get(stream);
            exchange.endAt = System.nanoTime();
            news.add(() -> exchange.answer.complete(new Answer(null, 0, null, null)));
        }

        @Override
        public void placed(int stream, MetaserverMessages.Placement placed) {
            Exchange exchange = open.get(stream);
            // Of several such frames only the last counts.
            if (exchange.place.getAndSet(placed) == null) {
                news.add(exchange.placed);
            }
        }

        @Override
        public void done(int stream) {
            answer(stream, new Answer(open.get(stream).head, 0, null, null));
        }

        @Override
        public void failed(int stream, Failure failure) {
            Exchange exchange = open.remove(stream);
            if (exchange != null) {
                Throwable raised = exchange.functions == null ? null : exchange.functions.raised();
                end(exchange, CallException.of(failure, raised));
            }
        }

        @Override
        public void ended(Failure failure) {
            ended = failure.text();
        }

        @Override
        public void closed(int stream) {
            work.signal();
        }

        @Override
        public void ping(byte[] pong) {
            if (signs.isAnswered()) {
                control.add(pong);
                work.signal();
            }
        }

        @Override
        public void pong() {
            CompletableFuture<Void> ping = signs.came();
            if (ping != null) {
                news.add(() -> ping.complete(null));
            }
        }
    }
}
