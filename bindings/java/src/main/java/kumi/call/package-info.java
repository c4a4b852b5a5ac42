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
 * <p>The guide to calling routines (docs/guide/calling.md) explains files, callbacks, objects and retries for all languages. Failures are
 * {@link kumi.call.CallException}s; each kind has its own class. Threads may share a client. An address may be that of a metaserver,
 * which chooses a server for each call.
 */
package kumi.call;
