package kumi.call.idl;

/**
 * One dimension of an array. The elements from {@code start} to {@code end}, exclusive, {@code step} apart, travel. The routine's
 * array has {@code size} elements along it.
 *
 * @param size elements along it
 * @param start the first that travels; null: 0
 * @param end after the last that travels; null: the size
 * @param step from one to the next; null: 1
 */
public record Dimension(Expr size, Expr start, Expr end, Expr step) {
    /** Whether all of it travels. */
    public boolean isWhole() {
        return start == null && end == null && step == null;
    }
}
