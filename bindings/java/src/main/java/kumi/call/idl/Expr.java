package kumi.call.idl;

import java.util.List;

/** An expression of scalar parameters. Sizes are computed in 64-bit integers; an overflow is an error. */
public sealed interface Expr {
    /** Deepest nesting of expressions. */
    int MOST_DEPTH = 32;

    /**
     * An integer.
     *
     * @param value its value
     */
    record Int(long value) implements Expr {}

    /**
     * A number; in costs and defaults only.
     *
     * @param value its value
     */
    record Real(double value) implements Expr {}

    /**
     * A text; in defaults only.
     *
     * @param value the text
     */
    record Text(String value) implements Expr {}

    /**
     * A parameter.
     *
     * @param index its number
     */
    record Param(int index) implements Expr {}

    /**
     * An operation on one operand.
     *
     * @param operation the operation
     * @param operand the operand
     */
    record Unary(UnaryOperation operation, Expr operand) implements Expr {}

    /**
     * An operation on two operands.
     *
     * @param operation the operation
     * @param left the left operand
     * @param right the right operand
     */
    record Binary(BinaryOperation operation, Expr left, Expr right) implements Expr {}

    /**
     * A choice between two values.
     *
     * @param condition the condition
     * @param then the value if the condition is not 0
     * @param otherwise the value if it is 0
     */
    record If(Expr condition, Expr then, Expr otherwise) implements Expr {}

    /**
     * A function call.
     *
     * @param function the function
     * @param arguments its arguments
     */
    record Call(Function function, List<Expr> arguments) implements Expr {}

    /** An operation on one operand. */
    enum UnaryOperation {
        /** Negation. */
        NEG,
        /** Logical "not": 1 for 0, otherwise 0. */
        NOT
    }

    /** An operation on two operands. Comparisons give 1 or 0. */
    enum BinaryOperation {
        /** Sum. */
        ADD(" + ", 6),
        /** Difference. */
        SUB(" - ", 6),
        /** Product. */
        MUL(" * ", 7),
        /** Quotient, towards zero. */
        DIV(" / ", 7),
        /** Remainder, with the sign of the dividend. */
        REM(" % ", 7),
        /** Power. */
        POW("^", 9),
        /** Less. */
        LT(" < ", 5),
        /** Less or equal. */
        LE(" <= ", 5),
        /** Greater. */
        GT(" > ", 5),
        /** Greater or equal. */
        GE(" >= ", 5),
        /** Equal. */
        EQ(" == ", 4),
        /** Not equal. */
        NE(" != ", 4),
        /** Logical "and". */
        AND(" && ", 3),
        /** Logical "or". */
        OR(" || ", 2);

        final String sign;
        final int binds;

        BinaryOperation(String sign, int binds) {
            this.sign = sign;
            this.binds = binds;
        }
    }

    /** A function in an expression. */
    enum Function {
        /** The least of two or more. */
        MIN,
        /** The greatest of two or more. */
        MAX,
        /** Absolute value. */
        ABS,
        /** Natural logarithm. */
        LOG,
        /** Logarithm to base 2. */
        LOG2,
        /** Square root. */
        SQRT;

        boolean takesOne() {
            return this != MIN && this != MAX;
        }

        boolean isReal() {
            return this == LOG || this == LOG2 || this == SQRT;
        }
    }
}
