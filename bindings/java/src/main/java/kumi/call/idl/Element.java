package kumi.call.idl;

/** Type of an array's element or a scalar. On the wire it is little-endian. */
public enum Element {
    /** 8 bits, signed. */
    I8("i8", "int8", 1),
    /** 16 bits, signed. */
    I16("i16", "int16", 2),
    /** 32 bits, signed. */
    I32("i32", "int", 4),
    /** 64 bits, signed. */
    I64("i64", "int64", 8),
    /** 8 bits. */
    U8("u8", "uint8", 1),
    /** 16 bits. */
    U16("u16", "uint16", 2),
    /** 32 bits. */
    U32("u32", "uint32", 4),
    /** 64 bits. */
    U64("u64", "uint64", 8),
    /** Single precision. */
    F32("f32", "float", 4),
    /** Double precision. */
    F64("f64", "double", 8),
    /** Two single-precision numbers. */
    C64("c64", "scomplex", 8),
    /** Two double-precision numbers. */
    C128("c128", "dcomplex", 16);

    private final String json;
    private final String spelled;
    private final int size;

    Element(String json, String spelled, int size) {
        this.json = json;
        this.spelled = spelled;
        this.size = size;
    }

    /** Bytes of one element. */
    public int size() {
        return size;
    }

    /** Its name in JSON. */
    String json() {
        return json;
    }

    /** Whether it may be used in a size. */
    public boolean isInteger() {
        return ordinal() <= U64.ordinal();
    }

    /** Whether it is an unsigned integer. */
    public boolean isUnsigned() {
        return isInteger() && ordinal() >= U8.ordinal();
    }

    /** Its name in descriptions. */
    @Override
    public String toString() {
        return spelled;
    }
}
