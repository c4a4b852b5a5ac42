/** What a call through a metaserver does next. The same machine as {@code core/routing}, whose vectors its tests run. */
package kumi.call.routing;
