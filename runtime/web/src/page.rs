//! The files of the page: those that `page/` builds, and those that are as they stand there. There are no others, so no path leads anywhere else.

/// A file: its path, type and content.
pub(crate) type StaticFile = (&'static str, &'static str, &'static [u8]);

/// The page itself, at `/`.
pub(crate) const INDEX: StaticFile =
    ("/", "text/html; charset=utf-8", include_bytes!("../page/static/index.html"));

/// All other files.
pub(crate) const FILES: [StaticFile; 4] = [
    ("/monitor.js", "text/javascript; charset=utf-8", include_bytes!("../page/built/monitor.js")),
    ("/monitor.css", "text/css; charset=utf-8", include_bytes!("../page/built/monitor.css")),
    ("/icon.svg", "image/svg+xml", include_bytes!("../page/static/icon.svg")),
    // Browsers look here for pages that are no pages, such as a refusal.
    ("/favicon.ico", "image/svg+xml", include_bytes!("../page/static/icon.svg")),
];
