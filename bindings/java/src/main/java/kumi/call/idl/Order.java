package kumi.call.idl;

/** How an array of several dimensions lies in memory. */
public enum Order {
    /** The last index moves fastest (C, Java). */
    ROW,
    /** The first index moves fastest (Fortran). */
    COLUMN
}
