//! Whether a job is an MPI program, by which library, and over what its messages go.

/// The variable that says which MPI library a job's program uses.
pub const MPI: &str = "KUMI_MPI";
/// The variable that says over what an MPI program's messages go.
pub const FABRIC: &str = "KUMI_FABRIC";

/// The variable that says whether an MPI program may use one-sided communication.
pub const ONE_SIDED: &str = "KUMI_MPI_ONE_SIDED";

/// The MPI library of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MpiLibrary {
    /// Open MPI: it asks by PMIx.
    OpenMpi,
    /// MPICH and Intel MPI: they ask by PMI.
    Mpich,
    /// Any or none: the program is a script or loads libraries as it runs.
    Any,
}

/// Over what an MPI program's messages go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fabric {
    /// Kumi's channels.
    #[default]
    Kumi,
    /// The library's own TCP.
    Tcp,
    /// The library's own shared memory, on one node.
    Shm,
}

/// How an MPI program is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpiSetting {
    /// Its library.
    pub library: MpiLibrary,
    /// Over what its messages go.
    pub fabric: Fabric,
    /// It may use one-sided communication (`MPI_Win_create` and all that follows).
    pub one_sided: bool,
}

impl MpiLibrary {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::OpenMpi => "openmpi",
            Self::Mpich => "mpich",
            Self::Any => "any",
        }
    }

    /// Whether its programs may ask by PMIx.
    pub fn pmix(self) -> bool {
        self != Self::Mpich
    }

    /// Whether its programs may ask by PMI-1 or PMI-2.
    pub fn pmi(self) -> bool {
        self != Self::OpenMpi
    }
}

impl Fabric {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kumi => "kumi",
            Self::Tcp => "tcp",
            Self::Shm => "shm",
        }
    }
}

impl MpiSetting {
    /// What the environment of a job says; none if it is no MPI program.
    ///
    /// # Errors
    /// A sentence: it says something else.
    pub fn of(env: &[(String, String)]) -> Result<Option<Self>, String> {
        let value = |wanted: &str| {
            let found = env.iter().find(|(name, value)| name == wanted && !value.is_empty());
            found.map(|(_, value)| value.as_str())
        };
        let library = match value(MPI) {
            None | Some("none") => return Ok(None),
            Some("openmpi") => MpiLibrary::OpenMpi,
            Some("mpich") => MpiLibrary::Mpich,
            Some("any") => MpiLibrary::Any,
            Some(other) => {
                return Err(format!("{MPI} is {other:?}: use openmpi, mpich, any or none"));
            }
        };
        let fabric = match value(FABRIC) {
            None | Some("kumi") => Fabric::Kumi,
            Some("tcp") => Fabric::Tcp,
            Some("shm") => Fabric::Shm,
            Some(other) => return Err(format!("{FABRIC} is {other:?}: use kumi, tcp or shm")),
        };
        let one_sided = match value(ONE_SIDED) {
            None | Some("yes") => true,
            Some("no") => false,
            Some(other) => return Err(format!("{ONE_SIDED} is {other:?}: use yes or no")),
        };
        Ok(Some(Self { library, fabric, one_sided }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<Option<MpiSetting>, String> {
        let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        MpiSetting::of(&pairs.iter().map(own).collect::<Vec<_>>())
    }

    #[test]
    fn the_environment_says_what_is_started() {
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[(MPI, "none"), (FABRIC, "x")]), Ok(None));
        assert_eq!(of(&[(MPI, ""), (FABRIC, "tcp")]), Ok(None));
        let setting = of(&[(FABRIC, "tcp"), (MPI, "openmpi")]).unwrap().unwrap();
        assert_eq!((setting.library, setting.fabric), (MpiLibrary::OpenMpi, Fabric::Tcp));
        assert_eq!(of(&[(MPI, "mpich")]).unwrap().unwrap().fabric, Fabric::Kumi);
        assert!(of(&[(MPI, "lam")]).unwrap_err().contains("openmpi, mpich, any or none"));
        assert!(of(&[(MPI, "any"), (FABRIC, "x")]).unwrap_err().contains("kumi, tcp or shm"));
        let one_sided = |word| of(&[(MPI, "any"), (ONE_SIDED, word)]);
        assert!(one_sided("").unwrap().unwrap().one_sided);
        assert!(!one_sided("no").unwrap().unwrap().one_sided);
        assert!(one_sided("maybe").unwrap_err().contains("yes or no"));
    }

    #[test]
    fn words_are_understood() {
        for library in [MpiLibrary::OpenMpi, MpiLibrary::Mpich, MpiLibrary::Any] {
            for fabric in [Fabric::Kumi, Fabric::Tcp, Fabric::Shm] {
                let found = of(&[(MPI, library.word()), (FABRIC, fabric.word())]);
                assert_eq!(found, Ok(Some(MpiSetting { library, fabric, one_sided: true })));
            }
            assert!(library.pmi() || library.pmix());
        }
    }
}
