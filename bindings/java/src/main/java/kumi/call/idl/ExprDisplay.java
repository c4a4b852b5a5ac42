package kumi.call.idl;

import java.util.List;
import java.util.Locale;
import kumi.call.idl.Expr.BinaryOperation;
import kumi.call.idl.Expr.UnaryOperation;

/** Expressions as text, with only the brackets they need. */
final class ExprDisplay {
    private static final int TERNARY = 1;
    private static final int UNARY = 8;
    private static final int PRIMARY = 10;

    private final List<Param> params;
    private final StringBuilder text = new StringBuilder();

    private ExprDisplay(List<Param> params) {
        this.params = params;
    }

    /** An expression in the notation of descriptions. */
    static String text(Expr expr, List<Param> params) {
        ExprDisplay shown = new ExprDisplay(params);
        shown.write(expr, TERNARY, 1);
        return shown.text.toString();
    }

    private static int binds(Expr expr) {
        if (expr instanceof Expr.Int number && number.value() < 0
                || expr instanceof Expr.Real real && Math.copySign(1, real.value()) < 0
                || expr instanceof Expr.Unary) {
            return UNARY;
        }
        if (expr instanceof Expr.If) {
            return TERNARY;
        }
        return expr instanceof Expr.Binary binary ? binary.operation().binds : PRIMARY;
    }

    private void write(Expr expr, int least, int depth) {
        if (depth > Expr.MOST_DEPTH) {
            text.append("...");
        } else if (binds(expr) < least) {
            text.append('(');
            open(expr, depth + 1);
            text.append(')');
        } else {
            open(expr, depth + 1);
        }
    }

    private void open(Expr expr, int below) {
        if (expr instanceof Expr.Int number) {
            text.append(number.value());
        } else if (expr instanceof Expr.Real number) {
            text.append(Scalar.spelled(number.value()));
        } else if (expr instanceof Expr.Text quoted) {
            quote(quoted.value());
        } else if (expr instanceof Expr.Param param) {
            boolean known = Integer.compareUnsigned(param.index(), params.size()) < 0;
            text.append(known ? params.get(param.index()).name() : "#" + Integer.toUnsignedString(param.index()));
        } else if (expr instanceof Expr.Unary unary) {
            text.append(unary.operation() == UnaryOperation.NEG ? '-' : '!');
            // Before a number the sign would become part of the number.
            boolean number = unary.operand() instanceof Expr.Int || unary.operand() instanceof Expr.Real;
            write(unary.operand(), number ? PRIMARY + 1 : UNARY, below);
        } else if (expr instanceof Expr.Binary binary) {
            boolean power = binary.operation() == BinaryOperation.POW;
            int binds = binary.operation().binds;
            write(binary.left(), power ? PRIMARY : binds, below);
            text.append(binary.operation().sign);
            write(binary.right(), power ? UNARY : binds + 1, below);
        } else if (expr instanceof Expr.If choice) {
            write(choice.condition(), TERNARY + 1, below);
            text.append(" ? ");
            write(choice.then(), TERNARY, below);
            text.append(" : ");
            write(choice.otherwise(), TERNARY, below);
        } else if (expr instanceof Expr.Call call) {
            text.append(call.function().name().toLowerCase(Locale.ROOT)).append('(');
            for (int index = 0; index < call.arguments().size(); index++) {
                text.append(index == 0 ? "" : ", ");
                write(call.arguments().get(index), TERNARY, below);
            }
            text.append(')');
        }
    }

    private void quote(String quoted) {
        text.append('"');
        quoted.codePoints().forEach(letter -> {
            switch (letter) {
                case '"' -> text.append("\\\"");
                case '\\' -> text.append("\\\\");
                case '\n' -> text.append("\\n");
                case '\t' -> text.append("\\t");
                case '\r' -> text.append("\\r");
                default -> {
                    if (Character.isISOControl(letter)) {
                        text.append("\\u{").append(Integer.toHexString(letter)).append('}');
                    } else {
                        text.appendCodePoint(letter);
                    }
                }
            }
        });
        text.append('"');
    }
}
