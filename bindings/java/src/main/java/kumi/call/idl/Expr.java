package kumi.call.idl;

import java.util.List;

/** An expression of scalar parameters. Sizes are computed in 64-bit integers, every overflow is an error. */
public sealed interface Expr {
    /** Most expressions in each other. */
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
     * One operand.
     *
     * @param operation what is done
     * @param operand with what
     */
    record Unary(UnaryOperation operation, Expr operand) implements Expr {}

    /**
     * Two operands.
     *
     * @param operation what is done
     * @param left with this
     * @param right and this
     */
    record Binary(BinaryOperation operation, Expr left, Expr right) implements Expr {}

    /**
     * One or the other.
     *
     * @param condition what decides
     * @param then its value when that is not 0
     * @param otherwise its value when it is
     */
    record If(Expr condition, Expr then, Expr otherwise) implements Expr {}

    /**
     * A function's value.
     *
     * @param function the function
     * @param arguments what it is of
     */
    record Call(Function function, List<Expr> arguments) implements Expr {}

    /** An operation on one operand. */
    enum UnaryOperation {
        /** The sign. */
        NEG,
        /** 1 of 0, else 0. */
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
        /** Both. */
        AND(" && ", 3),
        /** One or both. */
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
        /** Without its sign. */
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
