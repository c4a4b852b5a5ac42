//! The environment of an MPI program's ranks: who they are, and over what the library is to send.

use std::path::{Path, PathBuf};

use kumi_control::message::NodeRanks;

use super::setting::{Fabric, MpiSetting};

/// File of the provider for libfabric, which loads what ends so.
pub const PROVIDER: &str = "libkumi-fi.so";

/// Variables of other launchers, which a job must not inherit from the shell of its user: a library would believe them.
const FOREIGN: [&str; 8] = [
    "PMI_",
    "PMIX_",
    "OMPI_COMM_WORLD_",
    "OMPI_UNIVERSE_SIZE",
    "ORTE_",
    "HYDI_",
    "MPI_LOCAL",
    "MPIEXEC_",
];
/// Those of them that are settings.
const OWN: [&str; 2] = ["PMIX_MCA_", "PMI_VERSION"];

/// Whether a variable says who another launcher's process is.
pub fn is_foreign(name: &str) -> bool {
    FOREIGN.iter().any(|start| name.starts_with(start))
        && !OWN.iter().any(|start| name.starts_with(start))
}

/// Folders where the provider may be, for programs in this folder.
fn provider_folders(programs: &Path) -> [PathBuf; 3] {
    [
        programs.join("fabric"),
        programs.to_owned(),
        programs.parent().unwrap_or(programs).join("lib/kumi/fabric"),
    ]
}

/// The folder with the provider, if there is one.
pub fn find_provider(programs: &Path) -> Option<PathBuf> {
    provider_folders(programs).into_iter().find(|folder| folder.join(PROVIDER).is_file())
}

/// What settings of libraries depend on, beside the job.
#[derive(Clone, Copy, Debug, Default)]
pub struct Surroundings<'a> {
    /// The folder with the provider.
    pub provider: Option<&'a Path>,
    /// The nodes are all on this machine and reach each other by its loopback interface.
    pub loopback: bool,
    /// Ranks share processors.
    pub crowded: bool,
}

/// Settings of libraries. A variable that the user has set stays as it is.
pub fn settings(setting: MpiSetting, around: Surroundings<'_>) -> Vec<(String, String)> {
    let mut all: Vec<(&str, String)> = Vec::new();
    let mut set = |name, value: &str| all.push((name, value.to_owned()));
    if setting.library.pmix() {
        // Open MPI 4 takes itself for a program without a launcher unless it knows the launcher by name.
        set("FLUX_JOB_ID", "kumi");
        for (name, value) in open_mpi(setting.fabric, setting.one_sided) {
            set(name, value);
        }
        if around.crowded {
            // A rank that waits lets others run, as `mpirun` has it where it starts more ranks than processors.
            set("OMPI_MCA_mpi_yield_when_idle", "1");
        }
        if around.loopback && setting.fabric == Fabric::Tcp {
            // Open MPI leaves it out otherwise.
            set("OMPI_MCA_btl_tcp_if_include", "lo");
        }
    }
    if setting.library.pmi() {
        // Otherwise it wonders which of the protocols it is to speak.
        set("MPIR_CVAR_PMI_VERSION", "1");
        for (name, value) in mpich(setting.fabric) {
            set(name, value);
        }
    }
    match setting.fabric {
        Fabric::Kumi => {
            set("FI_PROVIDER", "kumi");
            if let Some(folder) = around.provider.and_then(Path::to_str) {
                set("FI_PROVIDER_PATH", folder);
            }
        }
        Fabric::Tcp => set("FI_PROVIDER", "tcp"),
        Fabric::Shm => {}
    }
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn open_mpi(fabric: Fabric, one_sided: bool) -> &'static [(&'static str, &'static str)] {
    match fabric {
        // The transport `ofi` of one-sided communication sleeps for a second when it is closed, whether it was used or not.
        Fabric::Kumi if !one_sided => &[
            ("OMPI_MCA_pml", "cm"),
            ("OMPI_MCA_mtl", "ofi"),
            ("OMPI_MCA_mtl_ofi_provider_include", "kumi"),
            ("OMPI_MCA_btl", "self"),
        ],
        Fabric::Kumi => &[
            ("OMPI_MCA_pml", "cm"),
            ("OMPI_MCA_mtl", "ofi"),
            ("OMPI_MCA_mtl_ofi_provider_include", "kumi"),
            // One-sided communication of version 5 takes `rdma`, over this. Version 4 prefers `rdma`, too, which fails there
            // without transports of its own, and gets `pt2pt` so. `ucx` would look for hardware and complain.
            ("OMPI_MCA_btl", "self,ofi"),
            ("OMPI_MCA_btl_ofi_provider_include", "kumi"),
            ("OMPI_MCA_osc", "^ucx"),
            ("OMPI_MCA_osc_rdma_priority", "1"),
        ],
        Fabric::Tcp => &[("OMPI_MCA_pml", "ob1"), ("OMPI_MCA_btl", "tcp,self")],
        // Version 4 calls its shared memory vader, version 5 sm.
        Fabric::Shm => {
            &[("OMPI_MCA_pml", "ob1"), ("OMPI_MCA_btl", "^tcp,ofi,openib,uct,usnic,portals4")]
        }
    }
}

fn mpich(fabric: Fabric) -> &'static [(&'static str, &'static str)] {
    match fabric {
        // Messages within a node go the same way as others.
        Fabric::Kumi => &[
            ("MPIR_CVAR_CH4_NETMOD", "ofi"),
            ("MPIR_CVAR_NOLOCAL", "1"),
            ("I_MPI_FABRICS", "ofi"),
            ("I_MPI_OFI_PROVIDER", "kumi"),
        ],
        Fabric::Tcp => &[
            ("MPIR_CVAR_CH4_NETMOD", "ofi"),
            ("MPIR_CVAR_NOLOCAL", "1"),
            ("I_MPI_FABRICS", "ofi"),
            ("I_MPI_OFI_PROVIDER", "tcp"),
        ],
        Fabric::Shm => &[("I_MPI_FABRICS", "shm")],
    }
}

/// Who a rank is, in the words of other launchers. `place` is that of its node among the job's nodes.
pub fn identity(
    part: &NodeRanks,
    local: u32,
    ranks: u32,
    place: u32,
    nodes: usize,
) -> Vec<(String, String)> {
    let rank = part.first.saturating_add(local).to_string();
    let (local, count, ranks) = (local.to_string(), part.count.to_string(), ranks.to_string());
    let (place, nodes) = (place.to_string(), nodes.to_string());
    [
        ("OMPI_COMM_WORLD_RANK", &rank),
        ("OMPI_COMM_WORLD_SIZE", &ranks),
        ("OMPI_COMM_WORLD_LOCAL_RANK", &local),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", &count),
        ("OMPI_COMM_WORLD_NODE_RANK", &local),
        ("PMI_RANK", &rank),
        ("PMI_SIZE", &ranks),
        ("MPI_LOCALRANKID", &local),
        ("MPI_LOCALNRANKS", &count),
        ("SLURM_PROCID", &rank),
        ("SLURM_NTASKS", &ranks),
        ("SLURM_NPROCS", &ranks),
        ("SLURM_LOCALID", &local),
        ("SLURM_NODEID", &place),
        ("SLURM_NNODES", &nodes),
    ]
    .map(|(name, value)| (name.to_owned(), value.clone()))
    .into()
}

#[cfg(test)]
mod tests {
    use super::super::setting::MpiLibrary;
    use super::*;
    use kumi_sched::NodeId;

    #[test]
    fn identities_of_other_launchers_are_known() {
        for name in
            ["PMI_FD", "PMI_RANK", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID"]
        {
            assert!(is_foreign(name), "{name}");
        }
        for name in ["PMIX_MCA_gds", "OMPI_MCA_btl", "MPIR_CVAR_CH4_NETMOD", "PATH", "MPI_HOME"] {
            assert!(!is_foreign(name), "{name}");
        }
    }

    #[test]
    fn each_fabric_is_asked_for_by_name() {
        let of = |library, fabric| {
            let provider = Some(Path::new("/p"));
            let around = Surroundings { provider, loopback: true, crowded: true };
            settings(MpiSetting { library, fabric, one_sided: true }, around)
        };
        let has = |all: &[(String, String)], name: &str, value: &str| {
            all.iter().any(|(n, v)| n == name && v == value)
        };
        let kumi = of(MpiLibrary::Any, Fabric::Kumi);
        assert!(has(&kumi, "FI_PROVIDER", "kumi") && has(&kumi, "FI_PROVIDER_PATH", "/p"));
        assert!(has(&kumi, "OMPI_MCA_mtl", "ofi") && has(&kumi, "MPIR_CVAR_CH4_NETMOD", "ofi"));
        assert!(has(&kumi, "OMPI_MCA_btl_ofi_provider_include", "kumi"));
        let setting =
            MpiSetting { library: MpiLibrary::Any, fabric: Fabric::Kumi, one_sided: false };
        let no_windows = settings(setting, Surroundings::default());
        assert!(
            has(&no_windows, "OMPI_MCA_btl", "self") && has(&no_windows, "OMPI_MCA_mtl", "ofi")
        );
        let tcp = of(MpiLibrary::OpenMpi, Fabric::Tcp);
        assert!(has(&tcp, "OMPI_MCA_btl", "tcp,self"));
        assert!(has(&tcp, "OMPI_MCA_btl_tcp_if_include", "lo"));
        assert!(has(&tcp, "OMPI_MCA_mpi_yield_when_idle", "1"));
        let (library, fabric) = (MpiLibrary::OpenMpi, Fabric::Tcp);
        let setting = MpiSetting { library, fabric, one_sided: true };
        let alone = settings(setting, Surroundings::default());
        assert_eq!(alone.len() + 2, tcp.len(), "what depends on the node");
        assert!(
            tcp.iter().all(|(name, _)| !name.starts_with("MPIR_") && name != "FI_PROVIDER_PATH")
        );
        let shm = of(MpiLibrary::Mpich, Fabric::Shm);
        assert!(shm.iter().all(|(name, _)| !name.starts_with("FI_") && !name.starts_with("OMPI_")));
    }

    #[test]
    fn the_provider_is_found_beside_the_programs_or_in_the_library_folder() {
        let folder = tempfile::tempdir().unwrap();
        let programs = folder.path().join("bin");
        assert_eq!(find_provider(&programs), None);
        for place in ["lib/kumi/fabric", "bin", "bin/fabric"] {
            let at = folder.path().join(place);
            std::fs::create_dir_all(&at).unwrap();
            std::fs::write(at.join(PROVIDER), "x").unwrap();
            assert_eq!(find_provider(&programs).as_deref(), Some(&*at), "the nearest is taken");
        }
    }

    #[test]
    fn ranks_are_named_as_others_name_them() {
        let part = NodeRanks { node: NodeId(7), first: 4, count: 2, processors: Vec::new() };
        let all = identity(&part, 1, 8, 2, 4);
        let value = |name: &str| all.iter().find(|(n, _)| n == name).unwrap().1.clone();
        assert_eq!((value("OMPI_COMM_WORLD_RANK"), value("PMI_SIZE")), ("5".into(), "8".into()));
        assert_eq!((value("SLURM_NODEID"), value("MPI_LOCALRANKID")), ("2".into(), "1".into()));
    }
}
