package kumi.call.idl;

import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** Checks that a description is valid, whoever wrote it. */
final class Validation {
    /** Most bytes of a parameter's name, and of each part of a routine's. */
    private static final int MOST_NAME = 128;

    private final List<Param> params;
    private final String routine;

    private Validation(Routine routine) {
        this.params = routine.params();
        this.routine = routine.name();
    }

    static void check(Routine routine) throws DescriptionException {
        Validation validation = new Validation(routine);
        for (String part : routine.name().split("[/.]", -1)) {
            validation.require(isName(part), "its name is none");
        }
        validation.require(routine.name().length() <= 4 * MOST_NAME, "its name is too long");
        String own = routine.className();
        boolean method = routine.name().equals(own) || routine.name().startsWith(own + ".");
        validation.require(own.isEmpty() || method, "it is no method of its class");
        validation.require(routine.params().size() <= Routine.MOST_PARAMS, "it has too many parameters");
        validation.params();
        if (routine.calcOrder() != null) {
            validation.expression(routine.params(), routine.calcOrder(), false, 1);
        }
        validation.status(routine.status());
    }

    private void require(boolean fits, String what) throws DescriptionException {
        if (!fits) {
            String name = routine.length() > 64 ? routine.substring(0, 64) + "…" : routine;
            throw new DescriptionException("the interface description of `" + name + "` cannot be used: " + what);
        }
    }

    private static boolean isName(String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        for (int index = 0; index < bytes.length; index++) {
            int letter = bytes[index];
            boolean digit = letter >= '0' && letter <= '9';
            boolean good = letter >= 'a' && letter <= 'z' || letter >= 'A' && letter <= 'Z' || letter == '_';
            if (!good && (!digit || index == 0)) {
                return false;
            }
        }
        return bytes.length > 0 && bytes.length <= MOST_NAME;
    }

    private void params() throws DescriptionException {
        Set<String> names = new HashSet<>();
        for (Param param : params) {
            require(names.add(param.name()), "there are two of one name");
            param(param);
            for (Dimension dimension : param.dims()) {
                dimension(params, dimension);
            }
            usual(param);
            if (param.type() instanceof Type.Callback callback) {
                callback(callback.params());
            }
        }
        int cycle = Defaults.order(params.size(), index -> Defaults.needs(params, index), new int[params.size()]);
        require(cycle < 0, "a default needs itself");
    }

    /** Checks of one parameter that do not depend on others. */
    private void param(Param param) throws DescriptionException {
        require(isName(param.name()), "a parameter's name is none");
        require(param.dims().size() <= Routine.MOST_DIMENSIONS, "`" + param.name() + "` has too many dimensions");
        if (param.isText()) {
            require(param.dims().size() <= 1, "texts cannot be arrays");
            require(!param.dims().isEmpty() || param.mode() == Mode.IN, "a text that comes back needs a size");
            require(param.dims().stream().allMatch(Dimension::isWhole), "a text has no section");
        } else if (!(param.type() instanceof Type.Number)) {
            require(param.dims().isEmpty(), "files and callbacks cannot be arrays");
            require(param.type() instanceof Type.File || param.mode() == Mode.IN, "a callback cannot be an output");
        }
    }

    private void dimension(List<Param> all, Dimension dimension) throws DescriptionException {
        expression(all, dimension.size(), true, 1);
        for (Expr expr : new Expr[] {dimension.start(), dimension.end(), dimension.step()}) {
            if (expr != null) {
                expression(all, expr, true, 1);
            }
        }
    }

    private void usual(Param param) throws DescriptionException {
        Expr expr = param.defaultValue();
        if (expr == null) {
            return;
        }
        boolean text = param.isText() && expr instanceof Expr.Text;
        Element element = param.scalar();
        require(param.mode().isSent() && (text || element != null),
                "only numbers and texts that are sent have defaults");
        if (element != null) {
            expression(params, expr, element.isInteger(), 1);
        }
    }

    private void callback(List<Param> inner) throws DescriptionException {
        require(inner.size() <= Routine.MOST_PARAMS, "a callback has too many parameters");
        Set<String> names = new HashSet<>();
        for (Param param : inner) {
            require(names.add(param.name()), "there are two of one name");
            require(!(param.type() instanceof Type.Callback), "a callback cannot be the parameter of one");
            require(!(param.type() instanceof Type.File), "a file cannot be a parameter of a callback");
            param(param);
            require(param.defaultValue() == null, "only numbers and texts that are sent have defaults");
            for (Dimension dimension : param.dims()) {
                dimension(inner, dimension);
            }
        }
    }

    private void status(int index) throws DescriptionException {
        if (index < 0) {
            return;
        }
        require(index < params.size(), "the status is no parameter");
        Param param = params.get(index);
        boolean integer = param.scalar() != null && param.scalar().isInteger();
        require(integer && param.mode().isReturned(), "the status is no integer that comes back");
    }

    private void expression(List<Param> all, Expr expr, boolean integers, int depth) throws DescriptionException {
        require(depth <= Expr.MOST_DEPTH, "an expression is nested too deep");
        int below = depth + 1;
        if (expr instanceof Expr.Real real) {
            require(!integers && Double.isFinite(real.value()), "only integers can stand in a size");
        } else if (expr instanceof Expr.Text) {
            require(false, "a text is no number");
        } else if (expr instanceof Expr.Param named) {
            operand(all, named.index(), integers);
        } else if (expr instanceof Expr.Unary unary) {
            expression(all, unary.operand(), integers, below);
        } else if (expr instanceof Expr.Binary binary) {
            expression(all, binary.left(), integers, below);
            expression(all, binary.right(), integers, below);
        } else if (expr instanceof Expr.If choice) {
            expression(all, choice.condition(), integers, below);
            expression(all, choice.then(), integers, below);
            expression(all, choice.otherwise(), integers, below);
        } else if (expr instanceof Expr.Call call) {
            require(!integers || !call.function().isReal(), "only integers can stand in a size");
            int count = call.arguments().size();
            require(call.function().takesOne() ? count == 1 : count >= 2 && count <= Routine.MOST_PARAMS,
                    "a function has a wrong number of arguments");
            for (Expr argument : call.arguments()) {
                expression(all, argument, integers, below);
            }
        }
    }

    private void operand(List<Param> all, int index, boolean integers) throws DescriptionException {
        require(Integer.compareUnsigned(index, all.size()) < 0, "an expression names a parameter that is not there");
        Param param = all.get(index);
        require(param.mode().isSent(), "`" + param.name() + "` is not known before the call");
        if (param.isText()) {
            return;
        }
        Element element = param.scalar();
        require(element != null, "`" + param.name() + "` is not a single number");
        boolean real = element == Element.F32 || element == Element.F64;
        require(element.isInteger() || real && !integers, "`" + param.name() + "` is no integer");
    }
}
