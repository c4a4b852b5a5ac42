package kumi.call.idl;

/**
 * One dimension of an array. Elements from {@code start} up to and without {@code end}, {@code step} apart, travel; the array
 * has {@code size} of them at the routine.
 *
 * @param size elements along it
 * @param start the first that travels; null: 0
 * @param end behind the last that travels; null: the size
 * @param step from one to the next; null: 1
 */
public record Dimension(Expr size, Expr start, Expr end, Expr step) {
    /** Whether all of it travels. */
    public boolean isWhole() {
        return start == null && end == null && step == null;
    }
}
