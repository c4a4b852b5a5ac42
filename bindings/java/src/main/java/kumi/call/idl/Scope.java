package kumi.call.idl;

import java.util.List;
import kumi.call.idl.Expr.BinaryOperation;
import kumi.call.idl.Expr.Function;
import kumi.call.idl.Expr.UnaryOperation;

/** The values of parameters, and of expressions that use them. */
record Scope(List<Param> params, Scalar[] scalars) {
    /** The value of an integer's size, bound or default. */
    long integer(Expr expr) throws EvalException {
        try {
            return integer(expr, 1);
        } catch (ArithmeticException beyond) {
            throw EvalException.overflow();
        }
    }

    /** The value of a cost, or of a number's default. */
    double real(Expr expr) throws EvalException {
        return real(expr, 1);
    }

    private long integer(Expr expr, int depth) throws EvalException {
        if (depth > Expr.MOST_DEPTH) {
            throw EvalException.tooDeep();
        }
        int below = depth + 1;
        if (expr instanceof Expr.Int number) {
            return number.value();
        } else if (expr instanceof Expr.Param param) {
            return integerOf(value(param.index()));
        } else if (expr instanceof Expr.Unary unary) {
            long operand = integer(unary.operand(), below);
            return unary.operation() == UnaryOperation.NEG ? Math.negateExact(operand) : truth(operand == 0);
        } else if (expr instanceof Expr.Binary binary) {
            long left = integer(binary.left(), below);
            if (isDecided(binary.operation(), left != 0)) {
                return truth(left != 0);
            }
            return integer(binary.operation(), left, integer(binary.right(), below));
        } else if (expr instanceof Expr.If choice) {
            return integer(integer(choice.condition(), below) != 0 ? choice.then() : choice.otherwise(), below);
        } else if (expr instanceof Expr.Call call) {
            return integer(call, below);
        }
        throw EvalException.notAnInteger();
    }

    private long integer(Expr.Call call, int depth) throws EvalException {
        if (call.arguments().isEmpty()) {
            throw EvalException.notANumber();
        }
        long value = integer(call.arguments().get(0), depth);
        if (call.function().isReal()) {
            throw EvalException.notAnInteger();
        }
        if (call.function() == Function.ABS) {
            return value < 0 ? Math.negateExact(value) : value;
        }
        for (Expr argument : call.arguments().subList(1, call.arguments().size())) {
            long other = integer(argument, depth);
            value = call.function() == Function.MIN ? Math.min(value, other) : Math.max(value, other);
        }
        return value;
    }

    private static long integerOf(Scalar scalar) throws EvalException {
        if (scalar instanceof Scalar.Signed signed) {
            return signed.value();
        }
        if (scalar instanceof Scalar.Unsigned unsigned) {
            if (unsigned.bits() < 0) {
                throw EvalException.overflow();
            }
            return unsigned.bits();
        }
        throw EvalException.notAnInteger();
    }

    private static long integer(BinaryOperation operation, long left, long right) throws EvalException {
        return switch (operation) {
            case ADD -> Math.addExact(left, right);
            case SUB -> Math.subtractExact(left, right);
            case MUL -> Math.multiplyExact(left, right);
            case DIV -> {
                nonZero(right);
                yield right == -1 ? Math.negateExact(left) : left / right;
            }
            case REM -> {
                nonZero(right);
                yield left % right;
            }
            case POW -> power(left, right);
            case LT -> truth(left < right);
            case LE -> truth(left <= right);
            case GT -> truth(left > right);
            case GE -> truth(left >= right);
            case EQ -> truth(left == right);
            case NE -> truth(left != right);
            // The left side did not decide.
            case AND, OR -> truth(right != 0);
        };
    }

    private static void nonZero(long divisor) throws EvalException {
        if (divisor == 0) {
            throw new EvalException("it divides by zero");
        }
    }

    private static long power(long base, long exponent) throws EvalException {
        if (exponent < 0) {
            throw new EvalException("it has a negative power of an integer");
        }
        if (base == 0 || base == 1) {
            return exponent == 0 ? 1 : base;
        }
        if (base == -1) {
            return exponent % 2 == 0 ? 1 : -1;
        }
        long value = 1;
        // With a base of two or more each further factor at least doubles the product, so an overflow ends this soon.
        for (long left = exponent; left > 0; left--) {
            value = Math.multiplyExact(value, base);
        }
        return value;
    }

    private double real(Expr expr, int depth) throws EvalException {
        if (depth > Expr.MOST_DEPTH) {
            throw EvalException.tooDeep();
        }
        int below = depth + 1;
        if (expr instanceof Expr.Int number) {
            return number.value();
        } else if (expr instanceof Expr.Real number) {
            return number.value();
        } else if (expr instanceof Expr.Param param) {
            return realOf(value(param.index()));
        } else if (expr instanceof Expr.Unary unary) {
            double operand = real(unary.operand(), below);
            return unary.operation() == UnaryOperation.NEG ? -operand : truth(operand == 0);
        } else if (expr instanceof Expr.Binary binary) {
            double left = real(binary.left(), below);
            if (isDecided(binary.operation(), left != 0)) {
                return truth(left != 0);
            }
            return real(binary.operation(), left, real(binary.right(), below));
        } else if (expr instanceof Expr.If choice) {
            return real(real(choice.condition(), below) != 0 ? choice.then() : choice.otherwise(), below);
        } else if (expr instanceof Expr.Call call) {
            return real(call, below);
        }
        throw EvalException.notANumber();
    }

    private double real(Expr.Call call, int depth) throws EvalException {
        if (call.arguments().isEmpty()) {
            throw EvalException.notANumber();
        }
        double value = real(call.arguments().get(0), depth);
        switch (call.function()) {
            case ABS:
                return Math.abs(value);
            case LOG:
                return Math.log(value);
            case LOG2:
                return Math.log(value) / Math.log(2);
            case SQRT:
                return Math.sqrt(value);
            default:
                break;
        }
        for (Expr argument : call.arguments().subList(1, call.arguments().size())) {
            double other = real(argument, depth);
            boolean least = call.function() == Function.MIN;
            // A NaN gives way to a number.
            value = Double.isNaN(value) ? other
                    : Double.isNaN(other) ? value
                    : least ? Math.min(value, other) : Math.max(value, other);
        }
        return value;
    }

    private static double realOf(Scalar scalar) throws EvalException {
        if (scalar instanceof Scalar.Real real) {
            return real.value();
        }
        if (scalar instanceof Scalar.Signed signed) {
            return signed.value();
        }
        if (scalar instanceof Scalar.Unsigned unsigned) {
            long bits = unsigned.bits();
            // Half of it, keeping the lost bit for rounding, times two.
            return bits >= 0 ? bits : (double) (bits >>> 1 | bits & 1) * 2;
        }
        throw EvalException.notANumber();
    }

    private static double real(BinaryOperation operation, double left, double right) {
        return switch (operation) {
            case ADD -> left + right;
            case SUB -> left - right;
            case MUL -> left * right;
            case DIV -> left / right;
            case REM -> left % right;
            // Two values that C distinguishes and Java does not.
            case POW -> left == 1 || left == -1 && Double.isInfinite(right) ? 1 : Math.pow(left, right);
            case LT -> truth(left < right);
            case LE -> truth(left <= right);
            case GT -> truth(left > right);
            case GE -> truth(left >= right);
            case EQ -> truth(left == right);
            case NE -> truth(left != right);
            case AND, OR -> truth(right != 0);
        };
    }

    private Scalar value(int index) throws EvalException {
        if (Integer.compareUnsigned(index, params.size()) >= 0 || !params.get(index).isOperand()) {
            String number = Integer.toUnsignedString(index);
            throw new EvalException("it names parameter " + number + ", which is no scalar of this routine");
        }
        Scalar value = index < scalars.length ? scalars[index] : null;
        if (value == null) {
            throw new EvalException("it needs a value of `" + params.get(index).name() + "`");
        }
        return value;
    }

    /** The value of {@code &&} or {@code ||} if the left side decides it. */
    private static boolean isDecided(BinaryOperation operation, boolean left) {
        return operation == BinaryOperation.AND && !left || operation == BinaryOperation.OR && left;
    }

    private static int truth(boolean value) {
        return value ? 1 : 0;
    }
}
