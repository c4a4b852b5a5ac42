package kumi.call.idl;

import java.util.ArrayList;
import java.util.List;

/** Copies between the packed section of an array and the caller's array, in either memory order. */
public final class Copies {
    /** Elements along each side of a block: two of them fit a first-level cache. */
    private static final int BLOCK = 32;

    /** One loop of a copy: its count, and its strides on both sides, in elements. */
    private record Loop(int count, int packed, int array) {}

    /** Copies an element from one side to the other. */
    @FunctionalInterface
    public interface Move {
        /**
         * Copies one element.
         *
         * @param packed its index in the packed section
         * @param array its index in the array
         */
        void element(int packed, int array);
    }

    private final List<Loop> loops = new ArrayList<>();
    private final int first;
    private final boolean nothing;

    /**
     * A copy between the argument's packed section and an array in {@code order}.
     *
     * @throws ArithmeticException it has 2^31 elements or more
     */
    public Copies(Argument argument, Order order) {
        List<Axis> axes = argument.axes();
        nothing = argument.section().bytes() == 0;
        if (nothing) {
            first = 0;
            return;
        }
        Math.toIntExact(argument.elements());
        int[] packed = strides(axes, argument.param().order(), true);
        int[] array = strides(axes, order, false);
        int begin = 0;
        for (int index = 0; index < axes.size(); index++) {
            Axis axis = axes.get(index);
            begin += (int) axis.start() * array[index];
            if (axis.count() > 1) {
                loops.add(new Loop((int) axis.count(), packed[index], (int) axis.step() * array[index]));
            }
        }
        first = begin;
        // The loop with the smallest stride in the array is last; before it is the one with the smallest stride in the section.
        loops.sort((one, other) -> Integer.compare(other.array(), one.array()));
        if (loops.size() > 2) {
            int inner = loops.size() - 1;
            int least = 0;
            for (int index = 1; index < inner; index++) {
                least = loops.get(index).packed() < loops.get(least).packed() ? index : least;
            }
            loops.add(inner - 1, loops.remove(least));
        }
        while (loops.size() < 2) {
            loops.add(0, new Loop(1, 0, 0));
        }
    }

    /** Stride along each axis, in elements. */
    private static int[] strides(List<Axis> axes, Order order, boolean packed) {
        int[] strides = new int[axes.size()];
        long stride = 1;
        for (int fast = 0; fast < strides.length; fast++) {
            int index = order == Order.ROW ? strides.length - 1 - fast : fast;
            strides[index] = (int) stride;
            stride *= packed ? axes.get(index).count() : axes.get(index).size();
        }
        return strides;
    }

    /** Copies every element of the section, in blocks: a transposition touches each cache line once. */
    public void each(Move move) {
        if (nothing) {
            return;
        }
        int outer = loops.size() - 2;
        int[] at = new int[outer];
        int packed = 0;
        int array = first;
        while (true) {
            plane(packed, array, move);
            int index = outer - 1;
            for (; index >= 0; index--) {
                Loop loop = loops.get(index);
                at[index]++;
                packed += loop.packed();
                array += loop.array();
                if (at[index] < loop.count()) {
                    break;
                }
                packed -= at[index] * loop.packed();
                array -= at[index] * loop.array();
                at[index] = 0;
            }
            if (index < 0) {
                return;
            }
        }
    }

    private void plane(int packed, int array, Move move) {
        Loop slow = loops.get(loops.size() - 2);
        Loop fast = loops.get(loops.size() - 1);
        for (int rows = 0; rows < slow.count(); rows += BLOCK) {
            int lastRow = Math.min(slow.count(), rows + BLOCK);
            for (int columns = 0; columns < fast.count(); columns += BLOCK) {
                int lastColumn = Math.min(fast.count(), columns + BLOCK);
                for (int i = rows; i < lastRow; i++) {
                    for (int j = columns; j < lastColumn; j++) {
                        move.element(packed + i * slow.packed() + j * fast.packed(),
                                array + i * slow.array() + j * fast.array());
                    }
                }
            }
        }
    }
}
