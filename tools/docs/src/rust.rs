//! Reads structs, enums and matches of our own Rust sources: documentation is made from their comments.

use crate::DocsError;
use quote::ToTokens;
use std::collections::BTreeMap;
use std::path::Path;
use syn::{Attribute, Expr, ExprLit, Item, Lit, Meta, Pat};

/// A field of a struct that serde reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in the file.
    pub key: String,
    /// Its Rust type.
    pub ty: String,
    /// Its documentation comment, in one line.
    pub doc: String,
    /// Whether it may be left out.
    pub optional: bool,
}

/// A variant of an enum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// Its name for serde.
    pub key: String,
    /// Its documentation comment, in one line.
    pub doc: String,
    /// Its message, as thiserror has it; none if it is that of another error.
    pub message: Option<String>,
    /// Whether it has no fields.
    pub is_unit: bool,
}

/// The items of all files of a folder, modules inside of files too, tests left out.
#[derive(Debug)]
pub struct Source {
    folder: String,
    items: Vec<Item>,
}

impl Source {
    /// Reads all Rust files below `folder`, a path from `root`.
    ///
    /// # Errors
    /// When one cannot be read or is not Rust.
    pub fn read(root: &Path, folder: &str) -> Result<Self, DocsError> {
        let mut items = Vec::new();
        let mut folders = vec![root.join(folder)];
        while let Some(place) = folders.pop() {
            let failed = |source| DocsError::File { path: place.display().to_string(), source };
            for entry in std::fs::read_dir(&place).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let text = std::fs::read_to_string(&path).map_err(failed)?;
                    let file = syn::parse_file(&text).map_err(|error| {
                        DocsError::Source(format!("{}: {error}", path.display()))
                    })?;
                    collect(file.items, &mut items);
                }
            }
        }
        Ok(Self { folder: folder.to_owned(), items })
    }

    /// Reads one file.
    ///
    /// # Errors
    /// When it cannot be read or is not Rust.
    pub fn read_file(root: &Path, path: &str) -> Result<Self, DocsError> {
        let mut source = Self::parse(&crate::read(root, path)?)?;
        source.folder = path.to_owned();
        Ok(source)
    }

    /// Both.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.items.extend(other.items);
        self
    }

    /// One text as a source.
    ///
    /// # Errors
    /// When it is not Rust.
    pub fn parse(text: &str) -> Result<Self, DocsError> {
        let file = syn::parse_file(text).map_err(|error| DocsError::Source(error.to_string()))?;
        let mut items = Vec::new();
        collect(file.items, &mut items);
        Ok(Self { folder: "the text".to_owned(), items })
    }

    fn missing(&self, what: &str, name: &str) -> DocsError {
        DocsError::Source(format!(
            "{} has no {what} `{name}`, from which a page is made",
            self.folder
        ))
    }

    /// The fields of the struct `name`.
    ///
    /// # Errors
    /// When there is none.
    pub fn fields(&self, name: &str) -> Result<Vec<Field>, DocsError> {
        let found = self.items.iter().find_map(|item| match item {
            Item::Struct(item) if item.ident == name => Some(item),
            _ => None,
        });
        let item = found.ok_or_else(|| self.missing("struct", name))?;
        let field = |field: &syn::Field| {
            let serde = serde(&field.attrs);
            let own = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
            let ty = field.ty.to_token_stream().to_string().replace(' ', "");
            Field {
                key: serde.get("rename").cloned().unwrap_or(own),
                doc: doc(&field.attrs),
                optional: serde.contains_key("default") || ty.starts_with("Option<"),
                ty,
            }
        };
        Ok(item.fields.iter().map(field).collect())
    }

    /// The variants of the enum `name`.
    ///
    /// # Errors
    /// When there is none.
    pub fn variants(&self, name: &str) -> Result<Vec<Variant>, DocsError> {
        let found = self.items.iter().find_map(|item| match item {
            Item::Enum(item) if item.ident == name => Some(item),
            _ => None,
        });
        let item = found.ok_or_else(|| self.missing("enum", name))?;
        let kebab = serde(&item.attrs).get("rename_all").is_some_and(|case| case == "kebab-case");
        let variant = |variant: &syn::Variant| Variant {
            name: variant.ident.to_string(),
            key: if kebab {
                dashes(&variant.ident.to_string())
            } else {
                variant.ident.to_string().to_lowercase()
            },
            doc: doc(&variant.attrs),
            message: message(&variant.attrs),
            is_unit: variant.fields.is_empty(),
        };
        Ok(item.variants.iter().map(variant).collect())
    }

    /// The text of the constant `name`.
    ///
    /// # Errors
    /// When there is none, or it is no string.
    pub fn text(&self, name: &str) -> Result<String, DocsError> {
        let found = self.items.iter().find_map(|item| match item {
            Item::Const(item) if item.ident == name => string(&item.expr),
            _ => None,
        });
        found.ok_or_else(|| self.missing("text", name))
    }

    /// For each variant of the enum the exit codes that function `name` gives it, by the names in `ExitCode::…`; `*` is the rest.
    /// The function is a method of the type `of`, or free if that is empty. A variant whose arm names none has the code of the error that it holds.
    ///
    /// # Errors
    /// When there is no such function.
    pub fn exit_codes(
        &self,
        of: &str,
        name: &str,
    ) -> Result<BTreeMap<String, Vec<String>>, DocsError> {
        let mut bodies = Vec::new();
        for item in &self.items {
            match item {
                Item::Fn(item) if of.is_empty() && item.sig.ident == name => {
                    bodies.push(item.block.as_ref());
                }
                Item::Impl(item) if is_for(item, of) => {
                    bodies.extend(item.items.iter().filter_map(|item| match item {
                        syn::ImplItem::Fn(item) if item.sig.ident == name => Some(&item.block),
                        _ => None,
                    }));
                }
                _ => {}
            }
        }
        let [body] = bodies[..] else {
            return Err(self.missing("function", &format!("{of}, {name}")));
        };
        let mut codes = BTreeMap::new();
        for statement in &body.stmts {
            match statement {
                syn::Stmt::Expr(expr, _) => arms(expr, &mut codes),
                syn::Stmt::Local(local) => {
                    if let Some(init) = &local.init {
                        arms(&init.expr, &mut codes);
                    }
                }
                _ => {}
            }
        }
        Ok(codes)
    }
}

/// Whether an implementation is of the type `of`, or turns one into another (`From<of>`).
fn is_for(item: &syn::ItemImpl, of: &str) -> bool {
    let own = item.self_ty.to_token_stream().to_string();
    let of_trait = item.trait_.as_ref().map(|(_, path, _)| path.to_token_stream().to_string());
    own == of && of_trait.is_none()
        || of_trait.is_some_and(|path| path.replace(' ', "") == format!("From<{of}>"))
}

fn collect(found: Vec<Item>, items: &mut Vec<Item>) {
    for item in found {
        match item {
            Item::Mod(module) => {
                if let Some((_, inner)) = module.content.filter(|_| module.ident != "tests") {
                    collect(inner, items);
                }
            }
            other => items.push(other),
        }
    }
}

/// The outermost match of an expression, arm by arm.
fn arms(expr: &Expr, codes: &mut BTreeMap<String, Vec<String>>) {
    let Expr::Match(found) = expr else { return };
    for arm in &found.arms {
        let mut names = Vec::new();
        variants_of(&arm.pat, &mut names);
        let body = arm.body.to_token_stream().to_string().replace(' ', "");
        let marks = ["ExitCode::", "E::"];
        let mut given: Vec<String> = Vec::new();
        for (at, mark) in marks.iter().flat_map(|mark| body.match_indices(mark)) {
            let rest = &body[at + mark.len()..];
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
            if name.chars().next().is_some_and(char::is_uppercase) && !given.contains(&name) {
                given.push(name);
            }
        }
        if given.is_empty() && body.starts_with("Self::") {
            given.push(body["Self::".len()..].to_owned());
        }
        if given.is_empty()
            && let Some(number) =
                body.strip_prefix("return").and_then(|rest| rest.parse::<u8>().ok())
        {
            given.push(number.to_string());
        }
        for name in names {
            let entry: &mut Vec<String> = codes.entry(name).or_default();
            entry.extend(
                given.iter().filter(|code| !entry.contains(code)).cloned().collect::<Vec<_>>(),
            );
        }
    }
}

fn variants_of(pat: &Pat, names: &mut Vec<String>) {
    let last = |path: &syn::Path| path.segments.last().map(|segment| segment.ident.to_string());
    match pat {
        Pat::Or(pat) => pat.cases.iter().for_each(|case| variants_of(case, names)),
        Pat::TupleStruct(pat) => names.extend(last(&pat.path)),
        Pat::Struct(pat) => names.extend(last(&pat.path)),
        Pat::Path(pat) => names.extend(last(&pat.path)),
        Pat::Wild(_) => names.push("*".to_owned()),
        _ => {}
    }
}

fn string(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// The documentation comment as one line: links in brackets lose these.
fn doc(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter(|attribute| attribute.path().is_ident("doc"));
    let lines = lines.filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(meta) => string(&meta.value),
        _ => None,
    });
    let text: Vec<String> = lines.map(|line| line.trim().to_owned()).collect();
    let text = text.join(" ");
    text.replace("[`", "`").replace("`]", "`").trim().trim_end_matches('.').to_owned()
}

/// The attributes for serde: `default`, `rename = "…"`, `rename_all = "…"`.
fn serde(attributes: &[Attribute]) -> BTreeMap<String, String> {
    let mut told = BTreeMap::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        let parsed = attribute.parse_nested_meta(|meta| {
            let name = meta.path.to_token_stream().to_string();
            let value = match meta.value() {
                Ok(value) => value.parse::<syn::LitStr>()?.value(),
                Err(_) => String::new(),
            };
            told.insert(name, value);
            Ok(())
        });
        // What is not understood is none of the three.
        drop(parsed);
    }
    told
}

/// The first argument of `#[error(…)]`, with names of fields in capitals and other places as dots.
fn message(attributes: &[Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.path().is_ident("error"))?;
    let Meta::List(list) = &attribute.meta else { return None };
    let first = list.tokens.clone().into_iter().next()?;
    let text = syn::parse_str::<syn::LitStr>(&first.to_string()).ok()?.value();
    let mut shown = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        shown += before;
        let (inside, behind) = after.split_once('}')?;
        let name = inside.split(':').next().unwrap_or_default();
        let is_name = name.starts_with(|c: char| c.is_alphabetic());
        shown += &if is_name { name.to_uppercase() } else { "…".to_owned() };
        rest = behind;
    }
    Some(shown + rest)
}

/// `CamelCase` as `camel-case`.
fn dashes(name: &str) -> String {
    let mut text = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_uppercase() && at > 0 {
            text.push('-');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        /// A file.
        #[derive(Deserialize)]
        struct File {
            /// Its name,
            /// in [`two`] lines.
            name: String,
            #[serde(default = "some", rename = "nodes")]
            hosts: Vec<Host>,
            /// Perhaps.
            #[serde(skip_serializing_if = "Option::is_none")]
            port: Option<u16>,
        }
        #[serde(rename_all = "kebab-case")]
        enum Way { ThereAndBack, Off(u8) }
        enum Bad {
            /// Not there.
            #[error("no {path} for {0:?}, {}", x)]
            Missing(u8),
            #[error(transparent)]
            Other(Inner),
            Third { source: u8 },
            Fourth,
        }
        impl Bad {
            fn exit_code(&self) -> ExitCode {
                let code = match self {
                    Self::Missing(_) if true => ExitCode::NoInput,
                    Self::Missing(_) | Self::Third { .. } => match x { 1 => ExitCode::Io, _ => ExitCode::Usage },
                    Self::Other(inner) => inner.exit_code(),
                    _ => ExitCode::Internal,
                };
                code
            }
        }
    "#;

    #[test]
    fn fields_have_keys_types_and_comments() {
        let source = Source::parse(TEXT).unwrap();
        let fields = source.fields("File").unwrap();
        let shown: Vec<_> = fields.iter().map(|f| (&*f.key, &*f.ty, &*f.doc, f.optional)).collect();
        let expected = [
            ("name", "String", "Its name, in `two` lines", false),
            ("nodes", "Vec<Host>", "", true),
            ("port", "Option<u16>", "Perhaps", true),
        ];
        assert_eq!(shown, expected);
        assert!(source.fields("Fil").is_err());
    }

    #[test]
    fn variants_have_keys_and_messages() {
        let source = Source::parse(TEXT).unwrap();
        let keys: Vec<_> =
            source.variants("Way").unwrap().into_iter().map(|v| (v.key, v.is_unit)).collect();
        assert_eq!(keys, [("there-and-back".to_owned(), true), ("off".to_owned(), false)]);
        let variants = source.variants("Bad").unwrap();
        assert_eq!(variants[0].message.as_deref(), Some("no PATH for …, …"));
        assert_eq!(variants[1].message, None);
    }

    #[test]
    fn exit_codes_are_those_of_the_arms() {
        let codes = Source::parse(TEXT).unwrap().exit_codes("Bad", "exit_code").unwrap();
        assert_eq!(codes["Missing"], ["NoInput", "Io", "Usage"]);
        assert_eq!(codes["Third"], ["Io", "Usage"]);
        assert_eq!(codes["Other"], Vec::<String>::new());
        assert_eq!(codes["*"], ["Internal"]);
    }
}
