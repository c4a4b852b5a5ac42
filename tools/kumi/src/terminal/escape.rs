//! Escapes: keys at the begin of a line that are for the command and not for the job.
//!
//! Pure: typed bytes go in, and what they mean comes out.

/// The character that begins an escape unless the user chooses another one.
pub const ESCAPE: u8 = b'~';

/// Finds escapes among what is typed.
#[derive(Debug)]
pub struct EscapeFilter {
    /// None: there are no escapes.
    escape: Option<u8>,
    place: Place,
}

/// Where the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    LineBegin,
    InLine,
    /// Behind an escape character, which is withheld.
    Escaped,
}

/// Meaning of some typed bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// What is for the job.
    pub pass: Vec<u8>,
    /// The user asks what there is to type.
    pub help: bool,
    /// The user leaves the job. What was typed behind that is dropped.
    pub leave: bool,
}

impl EscapeFilter {
    /// Escapes begin with this character.
    pub fn new(escape: Option<u8>) -> Self {
        Self { escape, place: Place::LineBegin }
    }

    /// The character with which escapes begin, if there are any.
    pub fn escape(&self) -> Option<char> {
        self.escape.map(char::from)
    }

    /// Takes what was typed.
    pub fn take(&mut self, typed: &[u8]) -> Keys {
        let mut keys = Keys::default();
        let Some(escape) = self.escape else {
            keys.pass.extend_from_slice(typed);
            return keys;
        };
        for &byte in typed {
            match self.place {
                Place::LineBegin if byte == escape => {
                    self.place = Place::Escaped;
                    continue;
                }
                Place::Escaped if byte == b'.' => {
                    keys.leave = true;
                    self.place = Place::LineBegin;
                    return keys;
                }
                Place::Escaped if byte == b'?' => {
                    keys.help = true;
                    self.place = Place::LineBegin;
                    continue;
                }
                // The character itself, once.
                Place::Escaped if byte == escape => {}
                Place::Escaped => keys.pass.push(escape),
                Place::LineBegin | Place::InLine => {}
            }
            keys.pass.push(byte);
            let ends = matches!(byte, b'\r' | b'\n');
            self.place = if ends { Place::LineBegin } else { Place::InLine };
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same bytes at once, and one by one.
    fn both(escape: Option<u8>, typed: &[u8]) -> Keys {
        let all = EscapeFilter::new(escape).take(typed);
        let mut filter = EscapeFilter::new(escape);
        let mut keys = Keys::default();
        for byte in typed {
            let next = filter.take(&[*byte]);
            keys.pass.extend(next.pass);
            keys.help |= next.help;
            keys.leave |= next.leave;
            if keys.leave {
                break;
            }
        }
        assert_eq!(all, keys, "pieces do not matter");
        all
    }

    fn keys(pass: &str, help: bool, leave: bool) -> Keys {
        Keys { pass: pass.as_bytes().to_vec(), help, leave }
    }

    #[test]
    fn an_escape_stands_at_the_begin_of_a_line() {
        let tilde = |typed: &str| both(Some(ESCAPE), typed.as_bytes());
        assert_eq!(tilde("~."), keys("", false, true));
        assert_eq!(tilde("ls\r~.x"), keys("ls\r", false, true));
        assert_eq!(tilde("ls ~.\r"), keys("ls ~.\r", false, false));
        assert_eq!(tilde("~?~."), keys("", true, true));
        assert_eq!(tilde("cd\r~/a\r"), keys("cd\r~/a\r", false, false));
        assert_eq!(tilde("~~.\r"), keys("~.\r", false, false));
        assert_eq!(tilde("~\r~."), keys("~\r", false, true), "a return ends this line, too");
        assert_eq!(tilde("\x03~."), keys("\x03~.", false, false));
    }

    #[test]
    fn another_character_or_none() {
        assert_eq!(both(Some(b'%'), b"~.\r%."), keys("~.\r", false, true));
        assert_eq!(both(None, b"~.\r~?"), keys("~.\r~?", false, false));
    }
}
