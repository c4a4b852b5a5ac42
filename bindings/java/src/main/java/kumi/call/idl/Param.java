package kumi.call.idl;

import java.util.List;

/**
 * One parameter of a routine.
 *
 * @param name its name, unique in the routine
 * @param mode which way it goes
 * @param type what it is, or what its elements are
 * @param dims the array's dimensions in the order of the description; none: a scalar
 * @param order how the routine wants the array laid out
 * @param defaultValue what stands for a scalar that a caller leaves out; null: nothing
 * @param doc what users read about it
 */
public record Param(
        String name, Mode mode, Type type, List<Dimension> dims, Order order, Expr defaultValue, String doc) {

    /** What it holds when it is a single number, otherwise null. */
    public Element scalar() {
        return type instanceof Type.Number number && dims.isEmpty() ? number.element() : null;
    }

    /** Whether it is an array of numbers. */
    public boolean isArray() {
        return type instanceof Type.Number && !dims.isEmpty();
    }

    /** Whether it is a text. */
    public boolean isText() {
        return type instanceof Type.Text;
    }

    /** Whether expressions may name it: a single number, or a text, which stands for its first character. */
    boolean isOperand() {
        return isText() || scalar() != null;
    }

    @Override
    public String toString() {
        StringBuilder text = new StringBuilder(name).append(": ");
        if (type instanceof Type.Number number) {
            text.append(number.element());
        } else {
            text.append(isText() ? "string" : type instanceof Type.File ? "file" : "callback");
        }
        return text.append(isArray() ? "[]".repeat(dims.size()) : "").toString();
    }
}
