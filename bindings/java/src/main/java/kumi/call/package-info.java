/**
 * Calls of numerical routines on servers.
 *
 * <pre>{@code
 * try (KumiClient client = KumiClient.connect("server:7070")) {
 *     Result result = client.call("dmmul", n, a, b);
 *     double[] c = result.doubles("C");
 * }
 * }</pre>
 *
 * <p>Arguments that are files to the routine are paths or arrays of bytes, those that are functions are {@link kumi.call.Callback}s. Failures
 * are {@link kumi.call.CallException}s, each kind a class of its own. Threads may share a client. The
 * address may be that of a metaserver, which chooses a server for each call.
 */
package kumi.call;
