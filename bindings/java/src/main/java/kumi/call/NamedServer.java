package kumi.call;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;

/** A server that the program has named, as a transaction that runs knows it. Only the thread that runs it uses this. */
final class NamedServer {
    private enum State {
        /** It is asked for its descriptions. */
        OPENING,
        /** It takes calls. */
        OPEN,
        /** It was silent, and is asked for a sign of life. */
        SILENT,
        /** Nor has it given one. It takes calls again if one comes after all. */
        GIVEN_UP
    }

    /**
     * What a server has said to the questions for routines.
     *
     * @param offers the routines that it has, by name
     * @param wrong why it has none of this name, or none that can be used
     * @param silence why it did not answer all questions; null: it has
     */
    record Opening(Map<String, KumiClient.KnownRoutine> offers, Map<String, String> wrong, String silence) {}

    final TransactionServer server;
    private State state = State.OPENING;
    private Opening opening = new Opening(Map.of(), Map.of(), null);
    /** Why it is silent. */
    private String silence;
    /** Calls that it has refused, and why. */
    private final Map<RecordedCall, String> refused = new HashMap<>();
    /** How often it was silent. What follows an earlier silence does not count. */
    private int silences;

    NamedServer(TransactionServer server) {
        this.server = server;
    }

    /** A routine of a server that is to describe it within the time for connecting. */
    static KumiClient.KnownRoutine describe(KumiClient client, String name) {
        try (CallContext.Scope limited = InheritedContext.of(client.options.connectTime(), null).enter()) {
            return client.known(name);
        }
    }

    /** Asks for these routines, and waits for the answers. Any thread may. A server that is silent is asked for no further one. */
    Opening ask(Set<String> names) {
        Opening said = new Opening(new HashMap<>(), new HashMap<>(), null);
        for (String name : names) {
            try {
                said.offers.put(name, describe(server.client, name));
            } catch (CallException.ConnectionLost | CallException.TimedOut none) {
                return new Opening(said.offers, said.wrong, none.getMessage());
            } catch (RuntimeException | OutOfMemoryError none) {
                said.wrong.put(name, Waits.again(none).getMessage());
            }
        }
        return said;
    }

    /** It was asked. False: it was silent. */
    boolean opened(Opening said) {
        opening = said;
        if (said.silence == null) {
            state = State.OPEN;
            server.isBack();
            return true;
        }
        boolean isFirst = state == State.OPENING;
        silent(said.silence);
        // Who gives signs of life only is waited for no longer.
        state = isFirst ? State.SILENT : State.GIVEN_UP;
        return false;
    }

    /** It does not answer. */
    void silent(String why) {
        silences++;
        silence = why;
        state = State.SILENT;
        server.giveUp();
    }

    int silences() {
        return silences;
    }

    /** It gives no sign of life either. */
    void giveUp() {
        state = State.GIVEN_UP;
    }

    /** It does not give this call what it asks for. */
    void refuse(RecordedCall call, String why) {
        refused.put(call, why);
    }

    boolean isOpening() {
        return state == State.OPENING && !server.connection.isBroken();
    }

    boolean isOpen() {
        return state == State.OPEN && !server.isLost();
    }

    /** Whether it may take calls later that it does not take now. */
    boolean mayCome() {
        return (state == State.OPENING || state == State.SILENT) && !server.connection.isBroken();
    }

    /** Whether a call may run there: as far as that is known, if it does not take calls now. */
    boolean isFor(RecordedCall call) {
        String name = call.of.routine().name();
        KumiClient.KnownRoutine here = opening.offers.get(name);
        boolean isOffered = here == null ? state != State.OPEN && !opening.wrong.containsKey(name) : here.hash() == call.of.hash();
        return isOffered && !refused.containsKey(call);
    }

    /** Why a call cannot run there. */
    String why(RecordedCall call) {
        String name = call.of.routine().name();
        String lost = server.connection.whyBroken();
        String why = refused.get(call);
        why = why == null ? lost : why;
        why = why == null ? opening.wrong.get(name) : why;
        why = why == null && state != State.OPEN ? silence : why;
        return server + ": " + (why == null ? "it has another description of it" : why);
    }
}
