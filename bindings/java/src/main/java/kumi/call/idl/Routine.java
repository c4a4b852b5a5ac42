package kumi.call.idl;

import java.util.List;
import java.util.stream.Collectors;

/**
 * A routine: what it is called by, what it takes and gives, and what it costs.
 *
 * @param name its name, unique on a server
 * @param doc what users read about it
 * @param params the parameters in the order of a call
 * @param calcOrder operations of a call; null: not said
 * @param idempotent a call may be run twice with the effect of one
 * @param status the integer output that is an error when it is not zero: its index; -1: there is none
 * @param className the class of which it is a method, called on objects of that; empty: it is a routine
 */
public record Routine(
        String name, String doc, List<Param> params, Expr calcOrder, boolean idempotent, int status, String className) {
    /** The version of the JSON form that is read. */
    public static final int VERSION = 1;
    /** Most parameters of a routine. */
    public static final int MOST_PARAMS = 256;
    /** Most dimensions of an array. */
    public static final int MOST_DIMENSIONS = 15;
    /** Bytes of JSON that are read at most. */
    public static final int MOST_JSON = 1 << 20;

    /**
     * A description from elsewhere: not longer than {@link #MOST_JSON}, and valid.
     *
     * @throws DescriptionException what it is instead
     */
    public static Routine fromJson(byte[] json) throws DescriptionException {
        Routine routine = DescriptionReader.read(json);
        Validation.check(routine);
        return routine;
    }

    /** A routine that is no method. */
    public Routine(String name, String doc, List<Param> params, Expr calcOrder, boolean idempotent, int status) {
        this(name, doc, params, calcOrder, idempotent, status, "");
    }

    /** Whether it is not a routine but stands for a class, of which objects can be made. */
    public boolean isConstructor() {
        return !className.isEmpty() && className.equals(name);
    }

    /**
     * The plan of a call with these scalars and texts, by parameter; null for arrays, outputs and what its default
     * stands for.
     *
     * @param limit most bytes of memory
     * @throws PlanException what does not fit, by parameter and expression, or that the call needs too much
     */
    public Plan plan(Scalar[] scalars, String[] texts, long limit) throws PlanException {
        return new Planner(this, limit).plan(scalars, texts);
    }

    /**
     * Fills in integers that are sent and were not given, from the shapes of arrays, by parameter and in the order of the
     * dimensions: where a dimension's size, or the end of what travels of it, is just that parameter. Of a matrix that is
     * given as a vector the last dimension is 1.
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

    /** Whether a parameter is an integer that is sent, which may follow from an array's size. */
    private boolean follows(int index) {
        if (Integer.compareUnsigned(index, params.size()) >= 0) {
            return false;
        }
        Element element = params.get(index).scalar();
        return element != null && element.isInteger() && params.get(index).mode().isSent();
    }

    /** Whether a caller may leave a parameter out: it has a default, or is the size of an array that is sent. */
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

    /** What it takes and gives, on one line. */
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
