package kumi.call;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;

/** Handles the events of something one after the other, in a background thread as long as there are any. */
final class EventQueue {
    /** What is to be done, and what instead if all is over. */
    private record Event(Runnable done, Runnable otherwise) {}

    private final BooleanSupplier isOver;
    private final Runnable after;
    private final Consumer<Throwable> failed;
    private final Deque<Event> events = new ArrayDeque<>();
    /** A thread handles events. The lock of {@code events} guards both. */
    private boolean taking;

    /**
     * A queue without events.
     *
     * @param isOver whether events come too late
     * @param after what follows each event that has not come too late
     * @param failed what is done if an event, or what follows it, throws this
     */
    EventQueue(BooleanSupplier isOver, Runnable after, Consumer<Throwable> failed) {
        this.isOver = isOver;
        this.after = after;
        this.failed = failed;
    }

    /** Adds an event, and what is done instead if it comes too late. Any thread may. */
    void post(Runnable event, Runnable otherwise) {
        synchronized (events) {
            events.add(new Event(event, otherwise));
            if (taking) {
                return;
            }
            taking = true;
        }
        try {
            BackgroundThreads.run(this::take);
        } catch (RuntimeException | OutOfMemoryError none) {
            // No thread is available: handle the events in this one.
            take();
        }
    }

    private void take() {
        while (true) {
            Event event;
            synchronized (events) {
                event = events.poll();
                taking = event != null;
            }
            if (event == null) {
                return;
            }
            try {
                if (isOver.getAsBoolean()) {
                    event.otherwise.run();
                } else {
                    event.done.run();
                    after.run();
                }
            } catch (RuntimeException | Error wrong) {
                failed.accept(wrong);
            }
        }
    }
}
