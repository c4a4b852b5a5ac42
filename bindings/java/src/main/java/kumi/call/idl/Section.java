package kumi.call.idl;

import java.util.ArrayList;
import java.util.List;

/** The part of an array that travels, in the order of the routine's memory. All numbers are bytes. */
public final class Section {
    /** An empty section. */
    static final Section EMPTY = new Section(0, 0, List.of(), 0);

    /** A loop around runs: its count and its stride. */
    record Loop(long count, long stride) {}

    private final long first;
    private final long run;
    private final List<Loop> outer;
    private final long bytes;

    private Section(long first, long run, List<Loop> outer, long bytes) {
        this.first = first;
        this.run = run;
        this.outer = outer;
        this.bytes = bytes;
    }

    /**
     * A section of elements of {@code size} bytes; the axis that varies fastest comes first. The whole array has fewer than 2^63
     * bytes.
     */
    static Section of(int size, List<Axis> fastestFirst) {
        long first = 0;
        long run = size;
        long bytes = size;
        long stride = size;
        List<Loop> outer = new ArrayList<>();
        for (Axis axis : fastestFirst) {
            if (axis.count() == 0) {
                return EMPTY;
            }
            first += axis.start() * stride;
            bytes *= axis.count();
            if (axis.count() > 1) {
                // The inner part fills the stride, so its repetitions are contiguous.
                if (outer.isEmpty() && axis.step() == 1 && run == stride) {
                    run *= axis.count();
                } else {
                    outer.add(new Loop(axis.count(), axis.step() * stride));
                }
            }
            stride *= axis.size();
        }
        return new Section(first, run, List.copyOf(outer), bytes);
    }

    /** Total bytes. */
    public long bytes() {
        return bytes;
    }

    /** Whether it is one run of bytes, which is sent and received without a copy. */
    public boolean isSingle() {
        return outer.isEmpty() && bytes > 0;
    }

    /** Offset of its first run. */
    public long first() {
        return first;
    }

    /** Bytes of each run. */
    public long run() {
        return run;
    }

    /** Handles a run. */
    @FunctionalInterface
    public interface RunAction {
        /**
         * Handles one run.
         *
         * @param offset bytes from the array's begin
         * @param length its bytes, never 0
         */
        void take(long offset, long length);
    }

    /** Visits the runs in the routine's order, at most {@code most} of them. */
    public void eachRun(long most, RunAction action) {
        long left = bytes == 0 ? 0 : Math.min(most, bytes / run);
        long[] at = new long[outer.size()];
        long offset = first;
        for (; left > 0; left--) {
            action.take(offset, run);
            for (int index = 0; index < at.length; index++) {
                Loop loop = outer.get(index);
                at[index]++;
                offset += loop.stride();
                if (at[index] < loop.count()) {
                    break;
                }
                offset -= at[index] * loop.stride();
                at[index] = 0;
            }
        }
    }
}
