//! The launches of a mixture of experts: who computes what, their products, and what becomes of the results.

use ropeway_model::spec::ExpertsSpec;

use super::{Program, Run};
use crate::blas::Operands;
use crate::driver::Address;
use crate::error::CudaError;
use crate::kernels::{Combine, ExpertKernels, ExpertTiles, Router, SortByExpert, TopkExperts};
use crate::plan::{MatrixId, Slot, VectorId};
use crate::products;

impl Run<'_> {
    /// Queues the choice of every row's experts, and what each of them has to compute.
    pub(super) fn route_experts(
        &self,
        router: VectorId,
        norm: VectorId,
        experts: ExpertsSpec,
    ) -> Result<(), CudaError> {
        self.router_logits(router, norm, experts)?;
        if self.rows() == 1 {
            let lists = [self.program.workspace.expert_lists, self.program.workspace.expert_work];
            return self.topk_experts(experts, lists);
        }
        self.topk_experts(experts, [Address::NULL; 2])?;
        self.sort_by_expert(experts)
    }

    fn router_logits(&self, router: VectorId, norm: VectorId, experts: ExpertsSpec) -> Result<(), CudaError> {
        let Program { stream, kernels, model, weights, workspace, constants, .. } = self.program;
        let arguments = Router {
            hidden: self.hidden,
            norm: weights.vector(Some(norm)),
            w: weights.vector(Some(router)),
            logits: workspace.expert_logits,
            counts: workspace.expert_counts,
            width: model.hidden as u32,
            rows: self.rows() as u32,
            experts: experts.experts as u32,
            eps: constants.eps,
        };
        let kernel = kernels.experts.router(self.rows());
        Ok(stream.launch(&kernel.function, kernel.shape(self.rows(), experts.experts), &arguments)?)
    }

    /// Queues the choice of experts. With a single row each pair has an expert to itself: `lists` and `work` are then written here, else they are null.
    fn topk_experts(&self, experts: ExpertsSpec, [lists, work]: [Address; 2]) -> Result<(), CudaError> {
        let Program { stream, kernels, workspace, .. } = self.program;
        let arguments = TopkExperts {
            logits: workspace.expert_logits,
            experts_of: workspace.experts_of,
            weights: workspace.expert_weights,
            counts: workspace.expert_counts,
            lists,
            work,
            rows: self.rows() as u32,
            experts: experts.experts as u32,
            top_k: experts.top_k as u32,
            normalise: u32::from(experts.normalise),
        };
        let shape = ExpertKernels::topk_shape(self.rows(), experts.experts);
        Ok(stream.launch(&kernels.experts.topk, shape, &arguments)?)
    }

    fn sort_by_expert(&self, experts: ExpertsSpec) -> Result<(), CudaError> {
        let Program { stream, kernels, workspace, .. } = self.program;
        let pairs = self.rows() * experts.top_k;
        let tiles = ExpertTiles::new(pairs, experts.experts, kernels.products.expert_rows());
        let arguments = SortByExpert {
            experts_of: workspace.experts_of,
            counts: workspace.expert_counts,
            lists: workspace.expert_lists,
            work: workspace.expert_work,
            pairs: pairs as u32,
            experts: experts.experts as u32,
            tile: tiles.rows as u32,
            items: tiles.most as u32,
        };
        let shape = ExpertKernels::sort_shape(pairs, experts.experts);
        Ok(stream.launch(&kernels.experts.sort, shape, &arguments)?)
    }

    /// Queues a product of every pair of a row and one of its experts.
    pub(super) fn expert_linear(
        &self,
        matrix: MatrixId,
        from: Slot,
        to: Slot,
        top_k: usize,
    ) -> Result<(), CudaError> {
        let Program { stream, kernels, weights, workspace, products, plan, .. } = self.program;
        let operands = Operands { w: weights.matrix(matrix), x: workspace.slot(from), y: workspace.slot(to) };
        let (matrix, pairs) = (plan.matrix(matrix), self.rows() * top_k);
        let lists = products::ExpertRows {
            lists: workspace.expert_lists,
            work: workspace.expert_work,
            tiles: ExpertTiles::new(pairs, matrix.copies, kernels.products.expert_rows()),
            // Only the first product reads tokens; the second reads what the first gave for each pair.
            rows_per_input: if from == Slot::Normed { top_k } else { 1 },
        };
        products.run_experts(stream, &kernels.products, matrix, pairs, operands, lists)
    }

    /// Queues the sum of every row's results, weighted.
    pub(super) fn combine(&self, experts: ExpertsSpec) -> Result<(), CudaError> {
        let Program { stream, kernels, model, workspace, .. } = self.program;
        let arguments = Combine {
            results: workspace.expert_results,
            weights: workspace.expert_weights,
            branch: workspace.branch,
            width: model.hidden as u32,
            top_k: experts.top_k as u32,
        };
        let shape = ExpertKernels::combine_shape(self.rows(), model.hidden);
        Ok(stream.launch(&kernels.experts.combine, shape, &arguments)?)
    }
}
