package kumi.call.idl;

import java.util.ArrayList;
import java.util.List;
import kumi.call.idl.PlanException.Kind;

/** Makes the plan of a call. */
final class Planner {
    /** Alignment of arrays at the server: a cache line. */
    private static final int ARRAY_ALIGN = 64;

    private final Routine routine;
    private final long limit;
    private Scope scope;

    Planner(Routine routine, long limit) {
        this.routine = routine;
        this.limit = limit;
    }

    Plan plan(Scalar[] given, String[] texts) throws PlanException {
        Scalar[] values = values(given, texts);
        scope = new Scope(routine.params(), values);
        List<Argument> arguments = new ArrayList<>(values.length);
        long memory = 0;
        long sent = 0;
        long returned = 0;
        for (int index = 0; index < values.length; index++) {
            Param param = routine.params().get(index);
            Argument argument = argument(param, values[index], memory);
            memory = argument.offset() + argument.bytes();
            if (argument.offset() < 0 || memory < 0 || memory > limit) {
                throw tooLarge(param, limit);
            }
            // At most the memory limit, so the sum does not overflow.
            sent += argument.sent();
            returned += argument.returned();
            arguments.add(argument);
        }
        return new Plan(List.copyOf(arguments), memory, sent, returned, operations());
    }

    private double operations() {
        if (routine.calcOrder() == null) {
            return Double.NaN;
        }
        try {
            double count = scope.real(routine.calcOrder());
            return count >= 0 && Double.isFinite(count) ? count : Double.NaN;
        } catch (EvalException none) {
            return Double.NaN;
        }
    }

    /** Every input scalar, converted to its type, with defaults filled in. */
    private Scalar[] values(Scalar[] given, String[] texts) throws PlanException {
        List<Param> params = routine.params();
        if (given.length != params.size()) {
            throw new PlanException(Kind.COUNT, routine.name(), "`" + routine.name() + "` has " + params.size()
                    + " parameters, " + given.length + " values were given");
        }
        Scalar[] values = new Scalar[given.length];
        boolean defaults = false;
        for (int index = 0; index < given.length; index++) {
            Param param = params.get(index);
            Element element = param.mode().isSent() ? param.scalar() : null;
            if (element != null) {
                if (given[index] != null) {
                    values[index] = fit(param, element, given[index]);
                } else if (param.defaultValue() == null) {
                    throw new PlanException(
                            Kind.MISSING, param.name(), "`" + param.name() + "` has no value and no default");
                } else {
                    defaults = true;
                }
            } else if (given[index] != null) {
                throw new PlanException(
                        Kind.UNEXPECTED, param.name(), "`" + param.name() + "` takes no scalar value");
            } else if (param.isText() && param.mode().isSent()) {
                String text = index < texts.length ? texts[index] : null;
                if (text == null && param.defaultValue() instanceof Expr.Text usual) {
                    text = usual.value();
                }
                values[index] = text == null ? null : Scalar.letter(text);
            }
        }
        if (defaults) {
            Defaults.fill(params, values);
        }
        return values;
    }

    static Scalar fit(Param param, Element element, Scalar value) throws PlanException {
        Scalar fitting = value.fit(element);
        if (fitting == null) {
            throw new PlanException(Kind.MISFIT, param.name(), "`" + param.name() + "` is of type " + element
                    + ", which cannot hold " + value);
        }
        return fitting;
    }

    static PlanException noValue(List<Param> params, Param param, String part, Expr expr, EvalException cause) {
        return new PlanException(Kind.EXPRESSION, param.name(), "`" + param.name() + "`: " + part + ", `"
                + ExprDisplay.text(expr, params) + "`, has no value: " + cause.getMessage());
    }

    private static PlanException tooLarge(Param param, long limit) {
        return new PlanException(Kind.TOO_LARGE, param.name(), "with `" + param.name()
                + "` the call needs more than " + limit + " bytes of memory");
    }

    private Argument argument(Param param, Scalar scalar, long memory) throws PlanException {
        if (param.dims().size() > Routine.MOST_DIMENSIONS) {
            throw new PlanException(Kind.DIMENSIONS, param.name(), "`" + param.name() + "` has "
                    + param.dims().size() + " dimensions; " + Routine.MOST_DIMENSIONS + " is the most");
        }
        List<Axis> axes = new ArrayList<>(param.dims().size());
        for (int index = 0; index < param.dims().size(); index++) {
            axes.add(axis(param, index));
        }
        int size = 0;
        int align = 1;
        if (param.type() instanceof Type.Number number) {
            size = number.element().size();
            align = axes.isEmpty() ? size : ARRAY_ALIGN;
        } else if (param.isText() && !axes.isEmpty()) {
            size = 1;
        }
        long elements = elements(param, axes);
        long bytes;
        try {
            bytes = Math.multiplyExact(elements, (long) size);
        } catch (ArithmeticException beyond) {
            throw tooLarge(param, Long.MAX_VALUE);
        }
        Section section = section(param, axes, elements, size);
        long offset = memory > Long.MAX_VALUE - align + 1 ? -1 : (memory + align - 1) / align * align;
        return new Argument(param, param.scalar() == null ? null : scalar, List.copyOf(axes), elements, bytes, offset,
                align, section, param.mode().isSent() ? section.bytes() : 0,
                param.mode().isReturned() ? section.bytes() : 0);
    }

    /** The bytes of a scalar or the section of an array that travels. */
    private static Section section(Param param, List<Axis> axes, long elements, int size) {
        if (!(param.type() instanceof Type.Number) || elements == 0 || param.mode() == Mode.WORK) {
            return Section.EMPTY;
        }
        List<Axis> fastestFirst = new ArrayList<>(axes);
        if (param.order() == Order.ROW) {
            java.util.Collections.reverse(fastestFirst);
        }
        return Section.of(size, fastestFirst);
    }

    /** Elements in memory; one without dimensions. */
    private static long elements(Param param, List<Axis> axes) throws PlanException {
        long count = 1;
        for (Axis axis : axes) {
            if (axis.size() == 0) {
                return 0;
            }
        }
        for (Axis axis : axes) {
            try {
                count = Math.multiplyExact(count, axis.size());
            } catch (ArithmeticException beyond) {
                throw tooLarge(param, Long.MAX_VALUE);
            }
        }
        return count;
    }

    private Axis axis(Param param, int index) throws PlanException {
        Dimension dimension = param.dims().get(index);
        long size = value(param, "the size", index, dimension.size(), 0);
        if (size < 0) {
            throw new PlanException(Kind.NEGATIVE, param.name(), "`" + param.name() + "`: the size of dimension "
                    + (index + 1) + ", `" + ExprDisplay.text(dimension.size(), routine.params()) + "`, is " + size);
        }
        long start = value(param, "the begin", index, dimension.start(), 0);
        long end = value(param, "the end", index, dimension.end(), size);
        long step = value(param, "the step", index, dimension.step(), 1);
        if (start < 0 || end < start || end > size || step < 1) {
            throw new PlanException(Kind.OUTSIDE, param.name(), "`" + param.name() + "`: dimension " + (index + 1)
                    + " has " + size + " elements, of which " + start + " up to " + end + ", " + step
                    + " apart, cannot be taken");
        }
        long count = end == start ? 0 : (end - start - 1) / step + 1;
        return new Axis(size, start, count, step);
    }

    private long value(Param param, String what, int index, Expr expr, long otherwise) throws PlanException {
        if (expr == null) {
            return otherwise;
        }
        try {
            return scope.integer(expr);
        } catch (EvalException cause) {
            String part = what + (what.equals("the size") ? " of" : " in") + " dimension " + (index + 1);
            throw noValue(routine.params(), param, part, expr, cause);
        }
    }
}
