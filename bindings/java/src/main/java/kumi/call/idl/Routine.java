package kumi.call.idl;

import java.util.List;
import java.util.stream.Collectors;

/**
 * A routine: its name, its parameters and its cost.
 *
 * @param name its name, unique on a server
 * @param doc its documentation for users
 * @param params the parameters in the order of a call
 * @param calcOrder operations of a call; null: not described
 * @param idempotent running a call twice has the effect of running it once
 * @param status index of the integer output that is an error unless zero; -1: none
 * @param className the class of a method; empty: it is a routine
 */
public record Routine(
        String name, String doc, List<Param> params, Expr calcOrder, boolean idempotent, int status, String className) {
    /** The supported version of the JSON form. */
    public static final int VERSION = 1;
    /** Most parameters of a routine. */
    public static final int MOST_PARAMS = 256;
    /** Most dimensions of an array. */
    public static final int MOST_DIMENSIONS = 15;
    /** Most bytes of JSON. */
    public static final int MOST_JSON = 1 << 20;

    /**
     * Reads a description from another program: not longer than {@link #MOST_JSON}, and valid.
     *
     * @throws DescriptionException it is not a valid description
     */
    public static Routine fromJson(byte[] json) throws DescriptionException {
        Routine routine = DescriptionReader.read(json);
        Validation.check(routine);
        return routine;
    }

    /** A routine that is not a method. */
    public Routine(String name, String doc, List<Param> params, Expr calcOrder, boolean idempotent, int status) {
        this(name, doc, params, calcOrder, idempotent, status, "");
    }

    /** Whether it describes a class, of which objects can be made, and not a routine. */
    public boolean isConstructor() {
        return !className.isEmpty() && className.equals(name);
    }

    /**
     * The plan of a call with these scalars and texts, by parameter; null for arrays, outputs and values left to their default.
     *
     * @param limit most bytes of memory
     * @throws PlanException an argument does not fit, or the call needs too much memory
     */
    public Plan plan(Scalar[] scalars, String[] texts, long limit) throws PlanException {
        return new Planner(this, limit).plan(scalars, texts);
    }

    /**
     * Fills in missing input integers from the shapes of arrays, by parameter and in the order of the dimensions. A dimension gives
     * a value if its size, or the end of its section, is just that parameter. A matrix that is given as a vector has a last
     * dimension of 1.
     */
    public void deduce(Scalar[] scalars, long[][] shapes) {
        for (int index = 0; index < params.size() && index < shapes.length; index++) {
            long[] shape = shapes[index];
            List<Dimension> dims = params.get(index).dims();
            int missing = shape == null ? -1 : dims.size() - shape.length;
            if (missing < 0 || missing > 1 || shape.length == 0) {
                continue;
            }
            for (int at = 0; at < dims.size(); at++) {
                long length = at < shape.length ? shape[at] : 1;
                learn(dims.get(at).end(), length, scalars);
                learn(dims.get(at).size(), length, scalars);
            }
        }
    }

    private void learn(Expr expr, long length, Scalar[] scalars) {
        if (expr instanceof Expr.Param named && follows(named.index()) && scalars[named.index()] == null) {
            scalars[named.index()] = new Scalar.Unsigned(length);
        }
    }

    /** Whether a parameter is an input integer, which may follow from an array's size. */
    private boolean follows(int index) {
        if (Integer.compareUnsigned(index, params.size()) >= 0) {
            return false;
        }
        Element element = params.get(index).scalar();
        return element != null && element.isInteger() && params.get(index).mode().isSent();
    }

    /** Whether a caller may leave out a parameter: it has a default, or is the size of an input array. */
    public boolean isOptional(int index) {
        Param param = params.get(index);
        if (param.isArray() || !param.mode().isSent()) {
            return false;
        }
        if (param.defaultValue() != null) {
            return true;
        }
        Expr named = new Expr.Param(index);
        return follows(index) && params.stream().filter(other -> other.isArray() && other.mode().isSent())
                .flatMap(other -> other.dims().stream())
                .anyMatch(dimension -> named.equals(dimension.size()) || named.equals(dimension.end()));
    }

    /** The parameter of this name; -1: there is none. */
    public int indexOf(String param) {
        for (int index = 0; index < params.size(); index++) {
            if (params.get(index).name().equals(param)) {
                return index;
            }
        }
        return -1;
    }

    /** Its parameters and results, on one line. */
    @Override
    public String toString() {
        String sent = params.stream().filter(param -> param.mode().isSent())
                .map(Param::toString).collect(Collectors.joining(", "));
        String back = params.stream()
                .filter(param -> param.mode().isReturned() && (status < 0 || param != params.get(status)))
                .map(Param::toString).collect(Collectors.joining(", "));
        return name + "(" + sent + ") -> (" + back + ")";
    }
}
