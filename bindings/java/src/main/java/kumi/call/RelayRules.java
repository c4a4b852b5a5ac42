package kumi.call;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Which arrays of a transaction go through the client from one server to another, and why. Threads may share them. */
final class RelayRules {
    /** Most vouchers of a call; many more would not fit into its head. */
    private static final int MOST_VOUCHERS = 100;

    private record Pair(TransactionServer reader, TransactionServer holder) {}

    private final Map<RecordedCall, String> calls = new ConcurrentHashMap<>();
    private final Map<Pair, String> pairs = new ConcurrentHashMap<>();

    /** The arrays of this call go through the client. */
    void relay(RecordedCall call, String why) {
        calls.put(call, why);
    }

    /** The one server gets no arrays from the other. */
    void keepApart(TransactionServer reader, TransactionServer holder, String why) {
        pairs.put(new Pair(reader, holder), why);
    }

    /**
     * Why an array goes through the client; null: the reader fetches it.
     *
     * @param vouchers how many the call is given already
     */
    String why(RecordedCall call, TransactionServer reader, TransactionServer holder, int vouchers) {
        String why = calls.get(call);
        why = why != null ? why : pairs.get(new Pair(reader, holder));
        if (why != null || !holder.wantsVouchers()) {
            return why;
        } else if (!reader.showsVouchers()) {
            return reader.address + " is of a version that shows no vouchers to others";
        }
        return vouchers < MOST_VOUCHERS ? null : reader.address + " can be given " + MOST_VOUCHERS + " vouchers with a call";
    }
}
