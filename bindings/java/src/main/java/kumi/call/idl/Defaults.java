package kumi.call.idl;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import java.util.function.IntFunction;
import kumi.call.idl.PlanException.Kind;

/** Defaults of scalars, which may name other scalars. */
final class Defaults {
    private Defaults() {}

    /** Gives its default to every input scalar without a value. */
    static void fill(List<Param> params, Scalar[] values) throws PlanException {
        int[] order = new int[params.size()];
        int cycle = order(params.size(), index -> values[index] == null ? needs(params, index) : List.of(), order);
        if (cycle >= 0) {
            String name = params.get(cycle).name();
            throw new PlanException(Kind.CYCLE, name, "the default of `" + name + "` needs itself");
        }
        for (int index : order) {
            Param param = params.get(index);
            Element element = param.scalar();
            Expr expr = param.defaultValue();
            if (element == null || expr == null || values[index] != null || !param.mode().isSent()) {
                continue;
            }
            Scope scope = new Scope(params, values);
            try {
                Scalar value = element.isInteger()
                        ? new Scalar.Signed(scope.integer(expr)) : new Scalar.Real(scope.real(expr));
                values[index] = Planner.fit(param, element, value);
            } catch (EvalException cause) {
                throw Planner.noValue(params, param, "the default", expr, cause);
            }
        }
    }

    /** The parameters in a parameter's default, in the order of the text. */
    static List<Integer> needs(List<Param> params, int index) {
        List<Integer> found = new ArrayList<>();
        Expr expr = params.get(index).defaultValue();
        if (expr != null) {
            collect(expr, params.size(), found);
        }
        return found;
    }

    private static void collect(Expr root, int params, List<Integer> found) {
        Deque<Expr> open = new ArrayDeque<>();
        open.push(root);
        while (!open.isEmpty()) {
            Expr expr = open.pop();
            if (expr instanceof Expr.Param param) {
                if (Integer.compareUnsigned(param.index(), params) < 0) {
                    found.add(param.index());
                }
            } else if (expr instanceof Expr.Unary unary) {
                open.push(unary.operand());
            } else if (expr instanceof Expr.Binary binary) {
                open.push(binary.right());
                open.push(binary.left());
            } else if (expr instanceof Expr.If choice) {
                open.push(choice.otherwise());
                open.push(choice.then());
                open.push(choice.condition());
            } else if (expr instanceof Expr.Call call) {
                List<Expr> arguments = new ArrayList<>(call.arguments());
                Collections.reverse(arguments);
                arguments.forEach(open::push);
            }
        }
    }

    private record Step(int at, Deque<Integer> left) {}

    /**
     * Fills {@code order} with {@code 0..count} so that each default comes after those it needs. Returns one that needs itself, or
     * -1.
     */
    static int order(int count, IntFunction<List<Integer>> needs, int[] order) {
        final byte open = 1;
        final byte done = 2;
        byte[] state = new byte[count];
        int filled = 0;
        Deque<Step> path = new ArrayDeque<>();
        for (int root = 0; root < count; root++) {
            if (state[root] == 0) {
                state[root] = open;
                path.push(new Step(root, new ArrayDeque<>(needs.apply(root))));
            }
            while (!path.isEmpty()) {
                Step step = path.peek();
                Integer next = step.left().pollLast();
                if (next == null) {
                    state[step.at()] = done;
                    order[filled++] = step.at();
                    path.pop();
                } else if (state[next] == open) {
                    return next;
                } else if (state[next] == 0) {
                    state[next] = open;
                    path.push(new Step(next, new ArrayDeque<>(needs.apply(next))));
                }
            }
        }
        return -1;
    }
}
