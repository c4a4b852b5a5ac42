package kumi.call.idl;

import java.util.List;

/**
 * One parameter of a routine.
 *
 * @param name its name, unique in the routine
 * @param mode its direction
 * @param type its type, or the type of its elements
 * @param dims the array's dimensions in the order of the description; none: a scalar
 * @param order the routine's memory order of the array
 * @param defaultValue the default of a scalar; null: none
 * @param doc its documentation for users
 */
public record Param(
        String name, Mode mode, Type type, List<Dimension> dims, Order order, Expr defaultValue, String doc) {

    /** The element type of a single number, otherwise null. */
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

    /** Whether expressions may use it: a single number, or a text, which has the value of its first character. */
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
