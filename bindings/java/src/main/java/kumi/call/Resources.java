package kumi.call;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Threads and memory that a call or an object asks for. A call counts as so many of the server's slots as its threads need, and waits
 * until these are free. A server refuses what it does not give: {@link CallException.NoResources}.
 */
public final class Resources {
    private final int threads;
    private final long memory;

    private Resources(int threads, long memory) {
        this.threads = threads;
        this.memory = memory;
    }

    /**
     * So many threads, and so many bytes of memory for the routine with all that it starts. 0: as many as the server gives.
     *
     * @throws IllegalArgumentException one of them is negative, or both are 0, which asks for nothing
     */
    public static Resources of(int threads, long memory) {
        if (threads < 0 || memory < 0 || threads == 0 && memory == 0) {
            throw new IllegalArgumentException(threads + " threads and " + memory + " bytes of memory: ask for at least one of them");
        }
        return new Resources(threads, memory);
    }

    /** How many threads the routine is to use; 0: as many as the server gives. */
    public int threads() {
        return threads;
    }

    /** Bytes of memory for the routine with all that it starts; 0: as many as the server gives. */
    public long memory() {
        return memory;
    }

    /** The body of a frame. */
    byte[] encode() {
        return ByteBuffer.allocate(Integer.BYTES + Long.BYTES).order(ByteOrder.LITTLE_ENDIAN).putInt(threads).putLong(memory).array();
    }
}
