package kumi.call.idl;

/** Memory order of an array of several dimensions. */
public enum Order {
    /** The last index varies fastest (C, Java). */
    ROW,
    /** The first index varies fastest (Fortran). */
    COLUMN
}
